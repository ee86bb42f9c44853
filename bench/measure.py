"""Fair timing on a machine that others use too: contenders take turns, and what counts is ratios.

A slow minute of the machine hits every contender of a round alike. So a ratio is taken within each
round, and the median of the rounds' ratios is the result; rates are medians of their own and only
say what order of size a figure has.

Work that waits for nothing, no disk and no other process, is timed by what it takes of the CPU,
which is the same on a machine that is busy and on one that is not.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

OURS = "tailrace"

_MEBIBYTE = bytes(1 << 20)
_PAGES_BYTES = 256 << 20
"""More than any turn writes."""


class Timed(Enum):
    """By which clock work is timed."""

    WALL = "s"
    CPU = "CPU s"

    def now(self) -> float:
        """Seconds of this clock."""
        return time.perf_counter() if self is Timed.WALL else time.process_time()


@dataclass(slots=True)
class Timer:
    """Times the work of one turn, and nothing that prepares it."""

    timed: Timed
    seconds: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add what happens inside to the time."""
        start = self.timed.now()
        try:
            yield
        finally:
            self.seconds += self.timed.now() - start


Turn: TypeAlias = Callable[[Path, Timer], int]
"""One turn of a contender in an empty directory: what it did is timed by `Timer`, and counted."""


class Scale(NamedTuple):
    """How much a run does: `size` shrinks or grows the work of a turn, `rounds` repeats it."""

    rounds: int
    size: float
    growth_pushes: int

    def count(self, normal: int) -> int:
        """So many of something at this scale, at least one."""
        return max(1, round(normal * self.size))


QUICK = Scale(rounds=3, size=0.2, growth_pushes=30_000)
NORMAL = Scale(rounds=3, size=1.0, growth_pushes=300_000)
FULL = Scale(rounds=5, size=1.0, growth_pushes=10_000_000)


@dataclass(frozen=True, slots=True)
class Rates:
    """What each contender did a second, round by round."""

    by_name: Mapping[str, Sequence[float]]
    timed: Timed

    def median(self, name: str) -> float:
        """The median rate of one."""
        return median(self.by_name[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times `other` the first one is: the median over rounds."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return median(one / another for one, another in pairs)


def take_turns(
    work: str, contenders: Mapping[str, Turn], rounds: int, timed: Timed = Timed.WALL
) -> Rates:
    """Let all contenders have a turn in each round, in a directory of their own.

    The first round does not count: it loads code and fills caches.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, turn in contenders.items():
            say(f"{work}: {name}, {f'round {number} of {rounds}' if number else 'warming up'}")
            rate = _rate(turn, timed)
            if number:
                rates[name].append(rate)
    return Rates(rates, timed)


def _rate(turn: Turn, timed: Timed) -> float:
    timer = Timer(timed)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        _use_pages(Path(directory))
        gc.collect()
        count = turn(Path(directory), timer)
    return count / timer.seconds


def _use_pages(directory: Path) -> None:
    """Leave the kernel with pages to use again, so that all contenders write to such pages.

    In a virtual machine a page that was never used takes ten times as long to write, and whoever
    came first would pay for all.
    """
    junk = directory / "junk"
    with junk.open("wb", buffering=0) as file:
        for _ in range(_PAGES_BYTES >> 20):
            file.write(_MEBIBYTE)
    junk.unlink()


def say(progress: str) -> None:
    """Tell whoever waits how far it is."""
    print(f"bench: {progress}", file=sys.stderr, flush=True)
