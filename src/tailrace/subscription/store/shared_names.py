"""The one namespace of pipelines, sources and subscriptions: no two of them have the same name.

Commands take each by its name alone. A change that creates one expects that no other kind has an
entry of the name, so of two creations at the same time at most one succeeds. The source that a
pipeline itself reads has the name of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.backend.contract import Store
from tailrace.errors import InvalidName
from tailrace.subscription.store.names import SUBSCRIPTIONS

PIPELINES: Final = "pipeline/"
"""Store entries under this prefix are the pipelines of the catalog."""

SOURCES: Final = "source/"
"""Store entries under this prefix are the sources of the catalog."""

_PREFIXES: Final[Mapping[str, str]] = {
    "pipeline": PIPELINES,
    "source": SOURCES,
    "subscription": SUBSCRIPTIONS,
}


def unused_by_others(kind: str, name: str, *sharing: str) -> dict[str, int]:
    """Return what a change that creates a thing of a kind expects of the other kinds.

    Those of `sharing` may have the name too.
    """
    return {
        prefix + name: 0 for other, prefix in _PREFIXES.items() if other not in (kind, *sharing)
    }


def check_unused(store: Store, kind: str, name: str, *sharing: str) -> None:
    """Raise `InvalidName` if something of another kind has the name, but for those of `sharing`."""
    for other, prefix in _PREFIXES.items():
        if other not in (kind, *sharing) and store.get(prefix + name) is not None:
            valid = f"a name that nothing else in the hub has: there is a {other} {name!r}"
            raise InvalidName(kind, name, valid)
