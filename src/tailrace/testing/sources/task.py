"""A task of a source in one life of a simulated process: it drives a `TaskDriver`.

The machine, its driver, the reading of splits and the transactions are those of `tailrace.source`.
Here are virtual time, and a worker for the store, which may fail. Each step of the driver is one
piece of work of that worker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from tailrace.errors import BackendUnavailable, Conflict
from tailrace.group.protocol.events import Drained, Subscribed, Unsubscribed
from tailrace.message import Partition
from tailrace.source.names import task_group
from tailrace.source.reading import SplitReading
from tailrace.source.task.actions import Claim, Publish, StoreEpoch, TaskAction
from tailrace.source.task.driver import TaskDriver
from tailrace.source.task.events import TaskEvent
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.membership import Membership
from tailrace.source.task.shared_run import LEAVE_S, REVOKE_S
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.thread import Blocking, SimulatedThread
from tailrace.testing.process import Process
from tailrace.testing.simulation import Simulation
from tailrace.testing.sources.checks import SourceChecks
from tailrace.testing.sources.reader import ReaderBroke
from tailrace.testing.trace import Mark

if TYPE_CHECKING:
    from tailrace.testing.sources.process import TaskOptions

POLL_S: Final = 0.25
"""How often an idle task looks at its topics and at its splits."""

PAUSE_S: Final = 12.0
"""The longest pause between a decision and what it does."""

RETRY_S: Final = 0.1
"""The time after which a step is done again that failed."""

_NOTICED: Final = (Claim, Publish, StoreEpoch)

_Act: TypeAlias = Callable[[], None]


class TracedMachine(TaskMachine):
    """A machine of a task whose events and actions are in the trace, and that is validated.

    `decided` is called when it has decided what others will notice.
    """

    def __init__(
        self, task: str, simulation: Simulation, *, ends: bool, decided: Callable[[], None]
    ) -> None:
        super().__init__(task, ends=ends)
        self._simulation = simulation
        self._decided = decided

    def handle(self, event: TaskEvent, now: float) -> list[TaskAction]:
        """Handle an event."""
        actions = super().handle(event, now)
        simulation = self._simulation
        simulation.trace.add(simulation.now, Mark.EVENT, self.task, event, tuple(actions))
        self.validate()
        if any(isinstance(action, _NOTICED) for action in actions):
            self._decided()
        return actions


class SimulatedTask:
    """A session of a simulated process, as its `GroupProgram` uses it.

    `left` is called once the task has left; `rejoins` tells if its run joins again as a new task.
    """

    progress_interval_s = 1.0

    def __init__(
        self,
        name: str,
        options: TaskOptions,
        process: Process,
        program: GroupProgram,
        simulation: Simulation,
        checks: SourceChecks,
        reading: Callable[[], SplitReading],
        left: Callable[[SimulatedTask], None],
    ) -> None:
        self.id = name
        self.group = task_group(options.source)
        self.worker = program.make_worker()
        self.ended = self.done = self.rejoins = False
        self._driver: TaskDriver | None = None
        self._options = options
        self._process = process
        self._program = program
        self._simulation = simulation
        self._checks = checks
        self._reading = reading
        self._left = left
        self._asked: list[_Act] = []
        self._leaving = self._departed = self._busy = self._notified = False
        self._timer = 0
        self._thread: SimulatedThread[_Act] = SimulatedThread(self._live())
        self._membership = Membership(
            program.backend,
            options.source,
            name,
            process.token,
            process.clock,
            options.lease_s,
        )

    @property
    def machine(self) -> TaskMachine | None:
        """The machine of the task; None before it has read the topics."""
        return None if self._driver is None else self._driver.machine

    # What the program calls.

    def start(self) -> None:
        """Join the tasks of the source."""
        self._continue()

    def leave(self) -> None:
        """Leave in an orderly way. What was read and not stored is read by another task."""
        self._leaving = True
        self._notify()

    def install(self, unit: str, epoch: int) -> None:
        """Lead the tasks."""
        self._ask(lambda: self._known_driver.lead(epoch))

    def drain(self, unit: str, epoch: int) -> None:
        """Lead no longer."""

        def follow() -> None:
            self._known_driver.follow()
            self._program.post(Drained(self.id, unit, epoch, 0))

        self._ask(follow)

    def drop(self, unit: str, epoch: int) -> None:
        """Lead no longer."""
        self._ask(self._known_driver.follow)

    def departed(self) -> None:
        """Learn that the task has left, or that its process has died."""
        self._departed = True
        if self._process.alive:
            self._notify()
        else:
            self._end()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read the topics."""
        self._notify()

    def store_changed(self) -> None:
        """Look for members that have joined or left."""
        if self._driver is not None:
            self._ask(self._driver.look_for_members)

    def save(self) -> None:
        """Do nothing: everything is stored at once."""

    def fail(self, error: BaseException) -> None:
        """Raise the error: in a simulation nothing ends a runtime."""
        raise error

    # Its thread.

    @property
    def _known_driver(self) -> TaskDriver:
        assert self._driver is not None
        return self._driver

    def _live(self) -> Generator[_Act | None, bool, None]:
        """The thread of the task: see `SharedRun`."""
        yield from self._until_done(self._open)
        yield from self._until_done(self._hear)
        yield from self._until_done(self._membership.enter)
        self._program.post(Subscribed(self.id, self.group, REVOKE_S))
        driver = self._known_driver
        while not (self._leaving or driver.done or driver.rejoins):
            done = yield self._step
            if not (done and self._busy):
                self._await()
                yield from self._pause(POLL_S if done else RETRY_S)
        self.done, self.rejoins = driver.done, driver.rejoins
        yield from self._depart()
        self._end()
        self._left(self)

    def _until_done(self, act: _Act) -> Blocking[_Act]:
        while not (yield act):
            yield from self._pause(RETRY_S)
        return True

    def _open(self) -> None:
        machine = TracedMachine(
            self.id, self._simulation, ends=self._options.ends, decided=self._decided
        )
        self._driver = TaskDriver(
            self._program.backend,
            self._options.source,
            machine,
            self._reading(),
            self._membership,
            clock=self._process.clock,
            bytes_max=self._options.message_bytes_max,
            make_id=lambda: f"epoch-{self._program.random.randrange(1 << 32):x}",
        )

    def _decided(self) -> None:
        """Sometimes pause between a decision and what it does: others go on meanwhile."""
        random, part = self._program.random, self._options.pausing
        if part and random.random() < part:
            self._process.pause(random.uniform(0, PAUSE_S))

    def _hear(self) -> None:
        while self._known_driver.hear():
            pass

    def _step(self) -> None:
        self._busy = True
        asked, self._asked = self._asked, []
        for act in asked:
            act()
        self._busy = self._known_driver.step()

    def _depart(self) -> Blocking[_Act]:
        if not self.rejoins:
            yield self._reading().close
        self._program.post(Unsubscribed(self.id))
        until = self._simulation.now + LEAVE_S
        while not self._departed and self._simulation.now < until:
            asked, self._asked = self._asked, []
            for act in asked:  # a drain of the unit must be answered
                act()
            yield from self._pause(RETRY_S)
        yield self._membership.leave
        return True

    def _end(self) -> None:
        self.ended = True
        self._thread.end()

    def _ask(self, act: _Act) -> None:
        self._asked.append(act)
        self._notify()

    def _await(self) -> None:
        """Be woken when a topic has more than was read."""
        if self._driver is not None:
            topics = (self._driver.sync, self._driver.heartbeat)
            offsets = {topic.partition: topic.next_offset for topic in topics}
            self._program.await_records(self.id, offsets)

    def _pause(self, seconds: float) -> Blocking[_Act]:
        """Wait for this time, or until something happens."""
        if self._asked:
            return True
        self._timer += 1
        timer = self._timer
        self._process.after(seconds, lambda: self._notify() if timer == self._timer else None)
        yield None
        return True

    def _notify(self) -> None:
        if self._thread.waits and not self._notified:
            self._notified = True
            self._process.after(0.0, self._notice)

    def _notice(self) -> None:
        self._notified = False
        if self._thread.waits:
            self._timer += 1
            self._continue()

    def _continue(self, succeeded: bool = True) -> None:
        """Run the thread until it waits, and have its work with the store done."""
        act = self._thread.resume(succeeded)
        if act is None:
            return

        def reach() -> Callable[[], None]:
            if self.ended:
                return lambda: None
            with self._checks.acting(self.id):
                try:
                    act()
                except (ReaderBroke, Conflict):
                    return lambda: self._continue(False)
                except (AssertionError, BackendUnavailable):
                    raise
                except Exception as error:
                    raise self._checks.violation(f"raises {error!r}") from error
            return self._continue

        self.worker.do(reach, otherwise=lambda: self._continue(False))
