"""How a subscription spares its endpoint, and its topic if the endpoint fails. Pure values.

`concurrency_total` is the most calls at a time over all workers. It is divided among the shards: an
owner never has more calls of a shard under way than the shard's part, so the sum holds wherever the
shards are. `breaker` says when dead letters are so many that the subscription pauses,
and `throttle` how many messages may fail in a second before it calls fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec

from tailrace.amount import is_whole
from tailrace.delivery.breaker import RUN, Breaker
from tailrace.delivery.share import format_share
from tailrace.delivery.throttle import SHARE, Throttle, parse_throttle
from tailrace.errors import InvalidValue

T = TypeVar("T")

OFF: Final = "off"
"""Turns a part of load control off, where None means the default, or no change."""

Total: TypeAlias = int | Literal["off"] | None
BreakerLike: TypeAlias = Breaker | str | None

_DEFAULT: Final = Breaker()
_MILLISECOND: Final = timedelta(milliseconds=1)


class LoadOptions(TypedDict, total=False):
    """The options of load control as users give them."""

    concurrency_total: Total
    breaker: BreakerLike
    throttle: float | str | None


class LoadControl(msgspec.Struct, frozen=True):
    """The load control of a subscription, as it is stored. None turns a part off."""

    concurrency_total: int | None = None
    breaker_run: int | None = RUN
    breaker_ratio: float = _DEFAULT.ratio
    breaker_window_ms: int = _DEFAULT.window // _MILLISECOND
    throttle: float | None = SHARE

    def throttle_of(self, shards: int) -> Throttle | None:
        """Return the throttle of each of so many shards."""
        return None if self.throttle is None else Throttle.of_shard(self.throttle, shards)

    @property
    def breaker(self) -> Breaker | None:
        """The breaker."""
        if self.breaker_run is None:
            return None
        window = self.breaker_window_ms * _MILLISECOND
        return Breaker(self.breaker_run, ratio=self.breaker_ratio, window=window)

    def breaker_of(self, shards: int) -> Breaker | None:
        """Return the breaker of each of so many shards."""
        breaker = self.breaker
        return None if breaker is None else breaker.of_shard(shards)

    def concurrency_of(self, shard: int, shards: int) -> int | None:
        """Return the most calls of a shard at a time, one at least; None if only its worker limits
        them."""
        if self.concurrency_total is None:
            return None
        each, rest = divmod(self.concurrency_total, shards)
        return max(1, each + (shard < rest))

    def check(self, shards: int) -> None:
        """Raise `InvalidValue` if a subscription with this number of shards cannot have it."""
        total = self.concurrency_total
        if total is not None and total < shards:
            valid = f"{shards} or more, one call for each of its shards, or {OFF!r}"
            raise InvalidValue("concurrency_total", total, valid)

    @property
    def options(self) -> LoadOptions:
        """The options that make any load control this one."""
        return LoadOptions(
            concurrency_total=self.concurrency_total or OFF,
            breaker=self.breaker or OFF,
            throttle=OFF if self.throttle is None else format_share(self.throttle),
        )

    @property
    def texts(self) -> dict[str, str]:
        """The value of each option as text."""
        return {option: str(value) for option, value in self.options.items()}


UNLIMITED: Final = LoadControl(None, breaker_run=None, throttle=None)
"""Load control of which every part is off."""


class LoadChange(NamedTuple):
    """The parts of load control that are given: None leaves one as it is."""

    concurrency_total: Total = None
    breaker: Breaker | Literal["off"] | None = None
    throttle: float | Literal["off"] | None = None

    def applied(self, base: LoadControl) -> LoadControl:
        """Return load control with these parts changed."""
        changes: dict[str, object] = {}
        if self.concurrency_total is not None:
            changes["concurrency_total"] = _unless_off(self.concurrency_total)
        if self.breaker == OFF:
            changes["breaker_run"] = None
        elif isinstance(self.breaker, Breaker):
            changes["breaker_run"] = self.breaker.run
            changes["breaker_ratio"] = self.breaker.ratio
            changes["breaker_window_ms"] = self.breaker.window // _MILLISECOND
        if self.throttle is not None:
            changes["throttle"] = _unless_off(self.throttle)
        return msgspec.structs.replace(base, **changes)


NO_CHANGE: Final = LoadChange()


def parse_load(
    *, concurrency_total: object = None, breaker: object = None, throttle: object = None
) -> LoadChange:
    """Return the load control that a user gives. Raises `InvalidValue`, which names the option."""
    return LoadChange(
        _parse_total(concurrency_total),
        _parsed(breaker, Breaker.parse),
        _parsed(throttle, parse_throttle),
    )


def _parsed(given: object, parse: Callable[[object], T]) -> T | Literal["off"] | None:
    if given is None or given == OFF:
        return None if given is None else OFF
    return parse(given)


def _unless_off(value: T | Literal["off"]) -> T | None:
    return None if value == OFF else value


def _parse_total(given: object) -> Total:
    return _parsed(given, _whole_total)


def _whole_total(given: object) -> int:
    if not (is_whole(given) and given >= 1):
        valid = f"a whole number, at least that of the shards, or {OFF!r}"
        raise InvalidValue("concurrency_total", given, valid)
    return given
