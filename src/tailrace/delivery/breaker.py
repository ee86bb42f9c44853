"""When dead letters are so many that a subscription pauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tailrace.amount import is_whole
from tailrace.delivery.share import format_share, parse_share
from tailrace.duration import format_duration, parse_duration
from tailrace.errors import InvalidValue

RUN: Final = 100
RATIO: Final = "50%"
WINDOW: Final = "10m"
"""The values of a breaker of which nothing, or only a part, is given."""

SHARD_RUN_MIN: Final = 20
"""The least number of dead letters that a shard waits for, if the whole run is not shorter: a few
could be by chance."""

_RUN_MAX: Final = 1_000_000
_FORM: Final = "a tailrace.Breaker, such as Breaker(run=50), text such as 'run=50,ratio=30%', 'on'"


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """A dead-letter breaker: the number of dead letters that pause a subscription.

    It pauses after `run` dead letters in a row, without a success between them, and after as many
    within `window` if they are at least `ratio` of the messages that ended in it. Only messages
    that were called count, and one of each key. Each shard decides for itself, and with its part of
    `run`.
    """

    run: int
    ratio: float
    window: timedelta

    def __init__(
        self, run: int = RUN, *, ratio: float | str = RATIO, window: timedelta | str = WINDOW
    ) -> None:
        if not (is_whole(run) and 1 <= run <= _RUN_MAX):
            raise InvalidValue("run", run, f"1 to {_RUN_MAX:,}")
        share, duration = parse_share(ratio, "ratio"), parse_duration(window, "window")
        if duration < timedelta(seconds=1):
            raise InvalidValue("window", window, "1s or longer")
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "ratio", share)
        object.__setattr__(self, "window", duration)

    @classmethod
    def parse(cls, given: object) -> Breaker:
        """Return a breaker, or the one of a text such as ``run=50,window=5m``; parts that are left
        out are those of the default, which is also ``on``. Raises `InvalidValue`."""
        if isinstance(given, Breaker):
            return given
        if not isinstance(given, str):
            raise InvalidValue("breaker", given, _FORM)
        if given == "on":
            return cls()
        parts: dict[str, str] = {}
        for part in given.split(","):
            name, _, value = part.partition("=")
            if name.strip() not in ("run", "ratio", "window") or name.strip() in parts:
                raise InvalidValue("breaker", given, f"{_FORM} or 'off'")
            parts[name.strip()] = value.strip()
        run = parts.pop("run", str(RUN))
        whole = int(run) if run.isascii() and run.isdecimal() else run
        try:
            return cls(whole, **parts)  # type: ignore[arg-type]
        except InvalidValue as error:
            valid = f"{error.what} {error.valid}"
            raise InvalidValue("breaker", given, valid) from None

    def __str__(self) -> str:
        window = format_duration(self.window)
        return f"run={self.run},ratio={format_share(self.ratio)},window={window}"

    def of_shard(self, shards: int) -> Breaker:
        """Return the breaker of each of so many shards."""
        run = min(self.run, max(SHARD_RUN_MIN, -(-self.run // shards)))
        return Breaker(run, ratio=self.ratio, window=self.window)
