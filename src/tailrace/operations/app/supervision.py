"""The decisions about the processes of an app: when each is started, stopped and killed. Pure.

The first process starts alone. The others start when it is ready, so that an error of the app
itself is found once. A process that ends is started again after a delay. If its error will not go
away, as it says, everything ends with that error, unless other processes still work: then only this
process waits and tries again, for example while the files of the app are being replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, NamedTuple, TypeAlias

from tailrace.delivery.retry import Retry

STEADY_S: Final = 60.0
"""A process that was ready for so long is started again as if it had never failed."""

KILL_EXTRA_S: Final = 5.0
"""How much longer than its drain timeout a process may take to end before it is killed."""

RESTARTS: Final = Retry(first="500ms", max="30s")
"""The delays before a process is started again."""

DRAINED: Final = 0
UNFINISHED: Final = 3
"""The exit statuses of a process that was stopped: nothing was in flight, or something was."""


class ProcessState(Enum):
    """The state of one of the processes."""

    WAITING = "waiting"
    """It does not run; it is started at its time."""
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"
    """It has ended and is not started again."""


class Began(NamedTuple):
    """The supervisor has begun."""


class ProcessReady(NamedTuple):
    """A process has started the workers of all its subscriptions."""

    number: int


class ProcessRefused(NamedTuple):
    """A process ends with an error that it would have again."""

    number: int


class ProcessExited(NamedTuple):
    """A process has ended. The status is negative for the signal that killed it."""

    number: int
    status: int


class StopAsked(NamedTuple):
    """The supervisor got a signal to stop. The second one stops it at once."""


class TimePassed(NamedTuple):
    """The deadline may have passed."""


class StartProcess(NamedTuple):
    """Start a process."""

    number: int


class AnnounceRestart(NamedTuple):
    """Log that a process ended and will be started again."""

    number: int
    status: int
    delay_s: float


class TerminateProcess(NamedTuple):
    """Ask a process to drain and end."""

    number: int


class KillProcess(NamedTuple):
    """Kill a process."""

    number: int


SupervisionEvent: TypeAlias = (
    Began | ProcessReady | ProcessRefused | ProcessExited | StopAsked | TimePassed
)
SupervisionAction: TypeAlias = StartProcess | AnnounceRestart | TerminateProcess | KillProcess


@dataclass(slots=True)
class _Process:
    """One of the processes. `due` is when it is started, if it waits."""

    state: ProcessState = ProcessState.WAITING
    due: float = inf
    ready_since: float = inf
    failures: int = 0
    refused: bool = False

    @property
    def runs(self) -> bool:
        return self.state in (ProcessState.STARTING, ProcessState.READY)


@dataclass(slots=True)
class Supervision:
    """The machine of a supervisor. `random` returns a number from 0 up to, not including, 1.

    `drain_s` is how long the processes may take to end once they are asked to.
    """

    count: int
    drain_s: float
    random: Callable[[], float]
    failure: int | None = None
    """The exit status of the process whose error ended everything."""
    unfinished: bool = False
    """True if a process ended with messages in flight."""
    _processes: list[_Process] = field(init=False)
    _kill_at: float | None = None

    def __post_init__(self) -> None:
        self._processes = [_Process() for _ in range(self.count)]

    @property
    def exit_status(self) -> int | None:
        """The exit status of the supervisor; None while there is something to wait for."""
        if any(each.state is not ProcessState.ENDED for each in self._processes):
            return None
        if self.failure is not None:
            return self.failure
        return UNFINISHED if self.unfinished else DRAINED

    @property
    def stopping(self) -> bool:
        """True once the processes were asked to end."""
        return self._kill_at is not None

    @property
    def ready(self) -> int:
        """The number of processes that are ready."""
        return sum(each.state is ProcessState.READY for each in self._processes)

    def handle(self, event: SupervisionEvent, now: float) -> list[SupervisionAction]:
        """Handle an event at a monotonic time, in seconds; return the actions, in this order."""
        return [*self._handled(event, now), *self._timely(now)]

    def deadline(self) -> float | None:
        """Return when the machine must get `TimePassed`; None if it waits for other events."""
        due = min((each.due for each in self._waiting()), default=inf)
        due = min(due, inf if self._kill_at is None else self._kill_at)
        return None if due == inf else due

    def validate(self) -> None:
        """Raise `AssertionError`, which names the violated invariant."""
        for each in self._processes:
            assert (each.due < inf) <= (each.state is ProcessState.WAITING), "only one that waits"
            assert (each.ready_since < inf) == (each.state is ProcessState.READY), "ready since"
        assert not (self.stopping and any(self._waiting())), "no start while stopping"

    def _handled(self, event: SupervisionEvent, now: float) -> Iterator[SupervisionAction]:
        match event:
            case Began():
                self._processes[0].due = now
            case ProcessReady(number):
                self._ready(self._processes[number], now)
            case ProcessRefused(number):
                self._processes[number].refused = True
            case ProcessExited(number, status):
                yield from self._exited(number, status, now)
            case StopAsked() if self.stopping:
                self._kill_at = now
            case StopAsked():
                yield from self._stop(now)

    def _timely(self, now: float) -> Iterator[SupervisionAction]:
        """Start the processes that are due, or kill those that took too long to end."""
        for number, each in enumerate(self._processes):
            if each.state is ProcessState.WAITING and each.due <= now:
                each.state, each.due, each.refused = ProcessState.STARTING, inf, False
                yield StartProcess(number)
            elif each.runs and self._kill_at is not None and self._kill_at <= now:
                yield KillProcess(number)
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = inf

    def _ready(self, process: _Process, now: float) -> None:
        if process.state is not ProcessState.STARTING:
            return
        process.state, process.ready_since = ProcessState.READY, now
        if not self.stopping:
            for each in self._waiting():
                if not each.failures:
                    each.due = now

    def _exited(self, number: int, status: int, now: float) -> Iterator[SupervisionAction]:
        process = self._processes[number]
        before, ready_since = process.state, process.ready_since
        process.state, process.ready_since = ProcessState.ENDED, inf
        if self.stopping:
            if before is ProcessState.READY:
                self._count_end(status)
            return
        if process.refused and (before is ProcessState.READY or not self.ready):
            self.failure = status
            yield from self._stop(now)
            return
        if now - ready_since >= STEADY_S:
            process.failures = 0
        process.failures += 1
        delay_s = RESTARTS.delay(process.failures, self.random()).total_seconds()
        process.state, process.due = ProcessState.WAITING, now + delay_s
        yield AnnounceRestart(number, status, delay_s)

    def _count_end(self, status: int) -> None:
        """Take the status of a process that was ready and was asked to end."""
        if status < 0 or status == UNFINISHED:
            self.unfinished = True
        elif status != DRAINED and self.failure is None:
            self.failure = status

    def _stop(self, now: float) -> Iterator[SupervisionAction]:
        self._kill_at = now + self.drain_s + KILL_EXTRA_S
        for number, each in enumerate(self._processes):
            if each.runs:
                yield TerminateProcess(number)
            else:
                each.state, each.due = ProcessState.ENDED, inf

    def _waiting(self) -> Iterator[_Process]:
        return (each for each in self._processes if each.state is ProcessState.WAITING)
