"""A process of a simulation: a machine with its own clock, that may pause, crash and restart.

It runs a `Program`: a machine in the form of `tailrace.machine`, and the code that executes its
actions. The process passes every queued event to the machine, one a step, and then, at the
machine's deadline, the program's tick. So a deadline is checked after all queued input was read.
After every event the machine validates itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from tailrace.errors import Error
from tailrace.machine import Machine
from tailrace.testing.arguments import check_seconds
from tailrace.testing.simulation import Simulation
from tailrace.testing.trace import Mark

WAKING_S: Final = 0.001
"""Within this time after a pause all threads of a process continue, in any order."""


class Program(Protocol):
    """The program of a process. Every start makes a new one."""

    @property
    def machine(self) -> Machine[Any, Any]:
        """The machine that decides."""

    @property
    def tick(self) -> Any:
        """The event that has the machine check the time."""

    def perform(self, action: Any) -> None:
        """Execute an action, now or later."""

    def receive(self, sender: str, message: Any) -> Any:
        """Return the event for a message from another process."""

    def end(self) -> None:
        """Release what the operating system releases when a process dies."""


class Life(Enum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class ProcessClock:
    """The `Clock` of one process. It starts at any time, runs a little fast or slow, and its wall
    clock may step."""

    def __init__(self, simulation: Simulation, start_s: float, rate: float) -> None:
        self._simulation = simulation
        self._started = simulation.now
        self._start_s = start_s
        self._rate = rate
        self._step_ms = 0
        self._least = start_s

    def monotonic(self) -> float:
        """Return the monotonic time of this clock, in seconds."""
        own = self._start_s + (self._simulation.now - self._started) * self._rate
        if own > self._least:
            self._least = own
        return self._least

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return 1_700_000_000_000 + round(self._simulation.now * 1000) + self._step_ms

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self._step_ms += milliseconds

    def when(self, own: float) -> float:
        """Return the simulation's time at which this clock shows a monotonic time."""
        return self._started + (own - self._start_s) / self._rate

    def reach(self, own: float) -> float:
        """Advance to at least this time, which rounding may have missed. Returns the time."""
        self._least = max(self._least, own)
        return self.monotonic()


class Process:
    """A process with a name. Each of its lives has a `token` of its own, which others send to.

    Methods other than `start` and `token` do nothing while the process is dead.
    """

    def __init__(
        self, simulation: Simulation, name: str, boot: Callable[[Process], Program]
    ) -> None:
        self.name = name
        self.life = Life.DEAD
        self.lives = 0
        self.clock_drift = 0.0
        """The part by which the clock of a life may be faster or slower than true time."""
        self._simulation = simulation
        self._boot = boot
        self._random = simulation.random(f"process {name}")
        self._inbox: deque[Any] = deque()
        self._deferred: list[Callable[[], None]] = []
        self._working = False
        self._tick_at: float | None = None
        self._deadline: float | None = None

    @property
    def token(self) -> str:
        """The name of this life."""
        return f"{self.name}.{self.lives}"

    @property
    def alive(self) -> bool:
        """True if the process is running or paused."""
        return self.life is not Life.DEAD

    def start(self) -> None:
        """Begin a new life without the state of the last one. `Error` unless it is dead."""
        if self.life is not Life.DEAD:
            raise Error(f"process {self.name} is {self.life.value}", "crash() it, then start() it")
        self.lives += 1
        drift = self._random.uniform(-self.clock_drift, self.clock_drift)
        start_s = float(self._random.randrange(1_000_000))
        self.clock = ProcessClock(self._simulation, start_s, 1 + drift)
        self.life = Life.RUNNING
        self._simulation.record(Mark.FAULT, self.name, f"starts as {self.token}")
        self.program = self._boot(self)
        self._check_deadline()

    def crash(self) -> None:
        """Die at once, with all state."""
        if not self.alive:
            return
        self.life = Life.DEAD
        self._inbox.clear()
        self._deferred.clear()
        self._working = False
        self._tick_at = None
        self._simulation.record(Mark.FAULT, self.name, "crashes")
        self.program.end()

    def pause(self, seconds: float | None = None) -> None:
        """Stop and queue all input, for a time or until `wake`."""
        if seconds is not None:
            check_seconds("the pause", seconds)
        if self.life is not Life.RUNNING:
            return
        self.life = Life.PAUSED
        self._working = False
        self._tick_at = None
        self._simulation.record(Mark.FAULT, self.name, "pauses")
        if seconds is not None:
            life = self.lives
            self._simulation.after(seconds, lambda: self.wake() if life == self.lives else None)

    def wake(self) -> None:
        """Continue after a pause: queued input first, then the tick."""
        if self.life is not Life.PAUSED:
            return
        self.life = Life.RUNNING
        self._simulation.record(Mark.FAULT, self.name, "wakes")
        deferred, self._deferred = self._deferred, []
        for call in deferred:
            self.after(self._random.uniform(0, WAKING_S), call)
        self.after(self._random.uniform(0, WAKING_S), self._resume)

    def post(self, event: Any) -> None:
        """Queue an event for the machine."""
        if self.alive:
            self._inbox.append(event)
            self._resume()

    def receive(self, sender: str, message: Any) -> None:
        """Queue a message from a process."""
        if self.alive:
            self.post(self.program.receive(sender, message))

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Schedule a call in a thread of this life; after the pause if it is paused then."""
        life = self.lives

        def called() -> None:
            if life != self.lives or self.life is Life.DEAD:
                return
            if self.life is Life.PAUSED:
                self._deferred.append(call)
            else:
                call()

        self._simulation.after(delay_s, called)

    def _resume(self) -> None:
        if self.life is Life.RUNNING and not self._working:
            self._working = True
            self.after(0.0, self._work)

    def _work(self) -> None:
        """Handle one event, or check the time if none is queued."""
        self._working = False
        if self._inbox:
            self._handle(self._inbox.popleft(), self.clock.monotonic())
            if self.life is Life.RUNNING and self._inbox:
                self._resume()
                return
        if self.life is Life.RUNNING:
            self._check_deadline()

    def _check_deadline(self) -> None:
        """Schedule a tick at the machine's deadline, unless an earlier one is scheduled."""
        own = self._deadline = self.program.machine.deadline()
        if own is None:
            return
        due = self.clock.when(own)
        if self._tick_at is None or due < self._tick_at:
            self._tick_at = due
            life = self.lives
            self._simulation.at(due, lambda: self._tick(due) if life == self.lives else None)

    def _tick(self, due: float) -> None:
        if due != self._tick_at or self.life is not Life.RUNNING:
            return
        self._tick_at = None
        if self._inbox:
            return  # the deadline is checked again once all events are handled
        own = self._deadline
        if own is not None and self.clock.when(own) <= self._simulation.now:
            self._handle(self.program.tick, self.clock.reach(own))
        if self.life is Life.RUNNING and not self._inbox:
            self._check_deadline()

    def _handle(self, event: Any, now: float) -> None:
        actions = self.program.machine.handle(event, now)
        if actions or event is not self.program.tick:
            simulation = self._simulation
            simulation.trace.add(simulation.now, Mark.EVENT, self.name, event, tuple(actions))
        self.program.machine.validate()
        for action in actions:
            self.program.perform(action)
