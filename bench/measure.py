"""Fair timing on a shared machine: contenders take turns, and the result is a ratio.

A slow minute of the machine slows every contender of a round alike. So each round gives a ratio,
and the result is the median of these ratios. Rates are medians too, and show only the order of
magnitude.

Work that waits neither for the disk nor for another process is timed by CPU time, which is the same
on a busy and on an idle machine.
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
    """The clock that times the work."""

    WALL = "s"
    CPU = "CPU s"

    def now(self) -> float:
        """Return the seconds of this clock."""
        return time.perf_counter() if self is Timed.WALL else time.process_time()


@dataclass(slots=True)
class Timer:
    """Times the work of one turn, without its preparation."""

    timed: Timed
    seconds: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time of the block."""
        start = self.timed.now()
        try:
            yield
        finally:
            self.seconds += self.timed.now() - start


Turn: TypeAlias = Callable[[Path, Timer], int]
"""One turn of a contender in an empty directory. Returns the number of things it did."""


class Scale(NamedTuple):
    """The amount of work: `size` is a factor on the work of a turn, `rounds` repeats it."""

    rounds: int
    size: float
    growth_pushes: int

    def count(self, normal: int) -> int:
        """Return a count at this scale, at least 1."""
        return max(1, round(normal * self.size))


QUICK = Scale(rounds=3, size=0.2, growth_pushes=30_000)
NORMAL = Scale(rounds=3, size=1.0, growth_pushes=300_000)
FULL = Scale(rounds=5, size=1.0, growth_pushes=10_000_000)


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate of each contender, round by round."""

    by_name: Mapping[str, Sequence[float]]
    timed: Timed

    def median(self, name: str) -> float:
        """Return the median rate of a contender."""
        return median(self.by_name[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median ratio of a contender to another."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return median(one / another for one, another in pairs)


def take_turns(
    work: str, contenders: Mapping[str, Turn], rounds: int, timed: Timed = Timed.WALL
) -> Rates:
    """Give every contender a turn in each round, in its own directory.

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
    """Let the kernel have used pages, so that all contenders write to such pages.

    In a virtual machine a page that was never used takes ten times as long to write, and the
    first contender would pay for all.
    """
    junk = directory / "junk"
    with junk.open("wb", buffering=0) as file:
        for _ in range(_PAGES_BYTES >> 20):
            file.write(_MEBIBYTE)
    junk.unlink()


def say(progress: str) -> None:
    """Print progress to stderr."""
    print(f"bench: {progress}", file=sys.stderr, flush=True)
