"""How a subscription spares its endpoint. Pure values.

`concurrency_total` is the most calls at a time over all workers. It is divided among the shards: an
owner never has more calls of a shard under way than the shard's part, so the sum holds wherever the
shards are.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

from tailrace.amount import is_whole
from tailrace.errors import InvalidValue

OFF: Final = "off"
"""Turns a part of load control off, where None means the default, or no change."""

Total: TypeAlias = int | Literal["off"] | None


class LoadOptions(TypedDict, total=False):
    """The options of load control as users give them."""

    concurrency_total: Total


class LoadControl(msgspec.Struct, frozen=True):
    """The load control of a subscription, as it is stored. None turns a part off."""

    concurrency_total: int | None = None

    def concurrency_of(self, shard: int, shards: int) -> int | None:
        """Return the most calls of a shard at a time; None if only its worker limits them."""
        if self.concurrency_total is None:
            return None
        each, rest = divmod(self.concurrency_total, shards)
        return each + (shard < rest)

    def check(self, shards: int) -> None:
        """Raise `InvalidValue` if a subscription with this number of shards cannot have it."""
        total = self.concurrency_total
        if total is not None and total < shards:
            valid = f"{shards} or more, one call for each of its shards, or {OFF!r}"
            raise InvalidValue("concurrency_total", total, valid)

    @property
    def options(self) -> LoadOptions:
        """The options that make any load control this one."""
        return LoadOptions(concurrency_total=self.concurrency_total or OFF)

    @property
    def texts(self) -> dict[str, str]:
        """The value of each option as text."""
        return {"concurrency_total": str(self.concurrency_total or OFF)}


UNLIMITED: Final = LoadControl(None)
"""Load control of which every part is off."""


class LoadChange(NamedTuple):
    """The parts of load control that are given: None leaves one as it is."""

    concurrency_total: Total = None

    def applied(self, base: LoadControl) -> LoadControl:
        """Return load control with these parts changed."""
        total = self.concurrency_total
        if total is None:
            return base
        return LoadControl(None if total == OFF else total)


NO_CHANGE: Final = LoadChange()


def parse_load(*, concurrency_total: object = None) -> LoadChange:
    """Return the load control that a user gives. Raises `InvalidValue`, which names the option."""
    return LoadChange(_parse_total(concurrency_total))


def _parse_total(given: object) -> Total:
    if given is None or given == OFF:
        return None if given is None else OFF
    if not (is_whole(given) and given >= 1):
        valid = f"a whole number, at least that of the shards, or {OFF!r}"
        raise InvalidValue("concurrency_total", given, valid)
    return given
