"""Fair timing on a machine that others use too: contenders take turns, and what counts is ratios.

A slow minute of the machine hits every contender of a round alike. So a ratio is taken within each
round, and the median of the rounds' ratios is the result; rates are medians of their own and only
say what order of size a figure has.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

OURS = "tailrace"


@dataclass(slots=True)
class Timer:
    """Times the work of one turn, and nothing that prepares it."""

    seconds: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add what happens inside to the time."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


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

    def median(self, name: str) -> float:
        """The median rate of one."""
        return median(self.by_name[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times `other` the first one is: the median over rounds."""
        pairs = zip(self.by_name[name], self.by_name[other], strict=True)
        return median(one / another for one, another in pairs)


def take_turns(work: str, contenders: Mapping[str, Turn], rounds: int) -> Rates:
    """Let all contenders have a turn in each round, in a directory of their own.

    The first round does not count. It loads code, and gives the kernel pages to use again: where
    memory was never touched before, a virtual machine pays for it ten times over.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, turn in contenders.items():
            say(f"{work}: {name}, {f'round {number} of {rounds}' if number else 'warming up'}")
            rate = _rate(turn)
            if number:
                rates[name].append(rate)
    return Rates(rates)


def _rate(turn: Turn) -> float:
    timer = Timer()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        gc.collect()
        count = turn(Path(directory), timer)
    return count / timer.seconds


def say(progress: str) -> None:
    """Tell whoever waits how far it is."""
    print(f"bench: {progress}", file=sys.stderr, flush=True)
