"""The one namespace of pipelines and subscriptions: no two of them have the same name.

Commands take either by its name alone. A change that creates one expects that no other kind has an
entry of the name, so of two creations at the same time at most one succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.backend.contract import Store
from tailrace.errors import InvalidName
from tailrace.subscription.store.names import SUBSCRIPTIONS

PIPELINES: Final = "pipeline/"
"""Store entries under this prefix are the pipelines of the catalog."""

_PREFIXES: Final[Mapping[str, str]] = {"pipeline": PIPELINES, "subscription": SUBSCRIPTIONS}


def unused_by_others(kind: str, name: str) -> dict[str, int]:
    """Return what a change that creates a pipeline or subscription expects of the other kinds."""
    return {prefix + name: 0 for other, prefix in _PREFIXES.items() if other != kind}


def check_unused(store: Store, kind: str, name: str) -> None:
    """Raise `InvalidName` if something of another kind has the name."""
    for other, prefix in _PREFIXES.items():
        if other != kind and store.get(prefix + name) is not None:
            valid = f"a name that nothing else in the hub has: there is a {other} {name!r}"
            raise InvalidName(kind, name, valid)
