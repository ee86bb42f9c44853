"""A thread of a simulated process that works with the store, one piece of work at a time.

Each piece of work takes time. It reaches the store at one instant of that time, and its answer
comes at the end. Between the two the process may be paused or die.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tailrace.errors import BackendUnavailable
from tailrace.testing.process import Life, Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark
from tailrace.testing.unreliable import UnreliableBackend

Answer: TypeAlias = Callable[[], None]
Work: TypeAlias = "Callable[[], Answer | None]"
"""Calls the store. Returns the call to make when the answer arrives, or None."""


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedWork:
    work: Work
    otherwise: Answer | None


class Worker:
    """The worker of one life of a process."""

    def __init__(
        self, simulation: Simulation, process: Process, backend: UnreliableBackend, random: Random
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._backend = backend
        self._random = random
        self._queue: deque[_QueuedWork] = deque()
        self._under_way: _QueuedWork | None = None
        """The work that has not reached the store yet."""
        self._busy = False

    def do(self, work: Work, *, otherwise: Answer | None = None) -> None:
        """Queue a piece of work. `otherwise` is called if the store fails."""
        self._queue.append(_QueuedWork(work, otherwise))
        self._next()

    def hurry(self) -> bool:
        """Let the current work reach the store now. False if there is none."""
        if self._under_way is None or self._process.life is not Life.RUNNING:
            return False
        self._reach(self._under_way, 0.0)
        return True

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        queued = self._under_way = self._queue.popleft()
        takes_s = self._takes_s()
        before_s = takes_s * self._random.random()
        self._process.after(before_s, lambda: self._reach(queued, takes_s - before_s))

    def _reach(self, queued: _QueuedWork, after_s: float) -> None:
        """Reach the store, unless `hurry` did; the answer comes later."""
        if self._under_way is not queued:
            return
        self._under_way = None
        try:
            answer = queued.work()
        except BackendUnavailable as error:
            answer = queued.otherwise
            self._simulation.record(Mark.STORE, self._process.name, error.args[0])
        if answer is None and not self._queue:
            self._busy = False
        else:
            self._process.after(after_s, lambda: self._answered(answer))

    def _answered(self, answer: Answer | None) -> None:
        self._busy = False
        if answer is not None:
            answer()
        self._next()

    def _takes_s(self) -> float:
        quality = self._backend.quality
        least, most = quality.delay_s
        if quality.stalling and self._random.random() < quality.stalling:
            most = quality.stalling_s
            self._simulation.record(Mark.STORE, self._process.name, "the store stalls")
        return self._random.uniform(least, most)
