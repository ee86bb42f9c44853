"""A thread of a simulated process that has to do with the store, one thing after another.

Each piece of work takes its time. What it does to the store happens at one instant of that time,
and its answer comes at the end: between the two the process may be paused, or die.
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
"""Does something to the store; gives back what is to be done once the answer has come."""


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    work: Work
    otherwise: Answer | None


class Worker:
    """Works for one life of a process."""

    def __init__(
        self, simulation: Simulation, process: Process, backend: UnreliableBackend, random: Random
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._backend = backend
        self._random = random
        self._queue: deque[_Order] = deque()
        self._under_way: _Order | None = None
        """What has not reached the store yet."""
        self._busy = False

    def do(self, work: Work, *, otherwise: Answer | None = None) -> None:
        """Do this after all that was asked for before; `otherwise` when the store fails."""
        self._queue.append(_Order(work, otherwise))
        self._next()

    def hurry(self) -> bool:
        """Let what is under way reach the store now; False when nothing can."""
        if self._under_way is None or self._process.life is not Life.RUNNING:
            return False
        self._reach(self._under_way, 0.0)
        return True

    def _next(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        order = self._under_way = self._queue.popleft()
        takes_s = self._takes_s()
        before_s = takes_s * self._random.random()
        self._process.after(before_s, lambda: self._reach(order, takes_s - before_s))

    def _reach(self, order: _Order, after_s: float) -> None:
        """Reach the store, unless it was hurried there; the answer comes later."""
        if self._under_way is not order:
            return
        self._under_way = None
        try:
            answer = order.work()
        except BackendUnavailable as error:
            answer = order.otherwise
            self._simulation.note(Mark.STORE, self._process.name, error.args[0])
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
            self._simulation.note(Mark.STORE, self._process.name, "the store stalls")
        return self._random.uniform(least, most)
