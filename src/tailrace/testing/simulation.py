"""A whole cluster in one thread, from one seed, in virtual time.

A `Simulation` is a queue of scheduled calls, a clock that jumps from one to the next, and
generators of random numbers that all come from the seed. Nothing waits: an hour of timers costs
as much as its events. The same seed gives the same run, event for event, so a run reproduces every
failure that it found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, TypeAlias

from tailrace.testing.arguments import check_callable, check_seconds
from tailrace.testing.trace import Mark, Trace

LINES_SHOWN: Final = 40
"""The number of lines of the trace that a violation shows: the last ones."""

Invariant: TypeAlias = Callable[[], None]
"""Raises `AssertionError`, with a description, if it does not hold."""


class Violation(AssertionError):
    """An invariant that does not hold. Shows the seed, the time and the end of the trace."""

    def __init__(self, what: str, seed: int, at: float, trace: Trace) -> None:
        super().__init__(what, seed, at)
        self.what = what
        self.seed = seed
        self.at = at
        self.trace = trace

    def __str__(self) -> str:
        head = f"{self.what}\nat {self.at:.6f} s of seed {self.seed}; its last events:\n\n"
        return head + self.trace.text(last=LINES_SHOWN)


class Simulation:
    """Virtual time, one thread, one seed.

    `now` is the true time in seconds. No process can read it: each has a clock of its own.
    Invariants are checked after every step and should cost little. A condition that can be checked
    when an event happens is better checked there, by `violation`.
    """

    def __init__(self, seed: int, *, trace: Trace | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.trace = Trace() if trace is None else trace
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._invariants: list[Invariant] = []
        self._remarks: list[Callable[[], str]] = []

    def random(self, purpose: str) -> random.Random:
        """Return a generator for one purpose. Its numbers do not depend on other generators."""
        return random.Random(f"{self.seed}/{purpose}")

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Schedule a call at a time. Calls of the same time happen in the order of scheduling."""
        self._scheduled += 1
        heappush(self._queue, (max(time, self.now), self._scheduled, call))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Schedule a call after a delay."""
        self.at(self.now + delay_s, call)

    def always(self, invariant: Invariant) -> None:
        """Check an invariant after every step from now on."""
        check_callable("the invariant", invariant, "a function without arguments")
        self._invariants.append(invariant)

    def remark(self, remark: Callable[[], str]) -> None:
        """Add a text to every violation, unless it is empty."""
        self._remarks.append(remark)

    def record(self, mark: Mark, where: str, what: object) -> None:
        """Add a line to the trace, with the present time."""
        self.trace.add(self.now, mark, where, what)

    def violation(self, what: str) -> Violation:
        """Return a violation for the caller to raise."""
        remarks = [remark() for remark in self._remarks]
        whole = "; ".join(filter(None, (what, *remarks)))
        return Violation(whole, self.seed, self.now, self.trace)

    def step(self) -> bool:
        """Make the next call and check every invariant. False if no call is scheduled."""
        if not self._queue:
            return False
        self.now, _, call = heappop(self._queue)
        self.steps += 1
        try:
            call()
            for invariant in self._invariants:
                invariant()
        except Violation:
            raise
        except AssertionError as wrong:
            raise self.violation(str(wrong)) from wrong
        return True

    def run(self, seconds: float) -> None:
        """Let time pass, and make every call that is due. Raises `Violation`."""
        check_seconds("the time to pass", seconds)
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.step()
        self.now = end

    def run_until(
        self, reached: Callable[[], bool], *, within_s: float, what: str = "the condition"
    ) -> float:
        """Let time pass until a condition, checked after every step, is true.

        Returns the seconds it took. Raises `Violation` if the condition is not true in time.
        """
        check_seconds("within_s", within_s)
        begun = self.now
        while not reached():
            if not self._queue or self._queue[0][0] > begun + within_s:
                self.now = begun + within_s
                if reached():
                    break
                raise self.violation(f"{what} was not reached within {within_s:g} s")
            self.step()
        return self.now - begun
