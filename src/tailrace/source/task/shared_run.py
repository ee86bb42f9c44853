"""A run of a source as one of its tasks: other processes may read other units of it."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock, SystemClock
from tailrace.errors import ConfigError, Error
from tailrace.group.protocol.events import Drained, Subscribed, Unsubscribed
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.runtime import Runtime, join
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.names import task_group
from tailrace.source.reader import Closeable, Reader, Until
from tailrace.source.reading import SplitReading
from tailrace.source.run import mark_old_table
from tailrace.source.split_state import read_some
from tailrace.source.task.driver import TaskDriver
from tailrace.source.task.leader_unit import LeaderUnit
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.membership import Membership
from tailrace.topic.composite import check_name

_log: Final = logging.getLogger("tailrace.source")

LEAVE_S: Final = 2.0
"""The longest time that a task waits for the group to know that it leaves."""

REVOKE_S: Final = 5.0


class SharedRun(Closeable):
    """One task of a source of the catalog. For one thread, but for `wake`.

    Raises `ConfigError` for a source that an earlier version began.

    It has the face of `SourceRun`: call `step` repeatedly, `wait` when it returns False, and stop
    when `done`. It joins the tasks of the source, and leaves them in `close`; what it has read and
    not stored is read again by another task.

    While `paused`, it reads nothing, keeps its units, and takes part in everything else.
    """

    def __init__(
        self,
        hub: Hub,
        name: str,
        reader: Reader,
        commit_log: Topic[Any],
        dead_letters: Topic[Any],
        until: Until,
        clock: Clock | None = None,
    ) -> None:
        self.name = check_name("source", name)
        self._backend = hub.backend
        self._clock = clock or SystemClock()
        self._until = until
        self._output = SourceOutput(name, commit_log, dead_letters)
        mark_old_table(self._backend, name)
        if read_some(self._backend, name, ()).removed_early:
            raise ConfigError(
                f"source {name!r} was begun by an earlier version, which binds no splits",
                "a pipeline can read it alone; to share it, read it under another name",
            )
        self._times = Times.of(hub.settings.lease)
        self._progress_s = hub.settings.progress_interval.total_seconds()
        self._session = reader.open(until)
        self._reading = SplitReading(self._output, self._session, until, self._clock)
        try:
            self._task = self._joined()
        except BaseException:
            self._session.close()
            raise

    @property
    def task(self) -> str:
        """The name of the task among the tasks of the source."""
        return self._task.id

    @property
    def leads(self) -> bool:
        """True if this is the leader task."""
        return self._task.driver.machine.is_leader

    @property
    def units(self) -> int:
        """The number of units that the task owns."""
        return len(self._reading.units)

    @property
    def tasks(self) -> int:
        """The number of tasks of the source, as this one knows it."""
        return max(1, len(self._task.driver.machine.members))

    @property
    def paused(self) -> bool:
        """True if the task reads nothing for now."""
        return self._task.driver.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._task.driver.paused = paused

    @property
    def rows(self) -> int:
        """The rows that were stored."""
        return self._reading.rows

    @property
    def bytes(self) -> int:
        """The bytes of the rows that were stored."""
        return self._reading.bytes

    @property
    def bad(self) -> int:
        """The dead letters that were stored."""
        return self._reading.bad

    @property
    def failing(self) -> bool:
        """True if the last read of some split was an error; it is read again later."""
        return self._reading.failing

    @property
    def done(self) -> bool:
        """True if all tasks have read everything within their `Until`."""
        return self._task.driver.done

    def step(self) -> bool:
        """Do what is due; False if there is nothing to do now.

        `Fenced` if a run that shares the source with no task has taken it over.
        """
        driver = self._task.driver
        self._task.obey()
        busy = driver.step()
        if driver.taken_over is not None:
            raise driver.taken_over
        if driver.rejoins:
            _log.warning("%s: task %s was counted as dead and joins again", self.name, self.task)
            self._task.leave()
            self._task = self._joined()
            return True
        return busy

    def wait(self, seconds: float) -> None:
        """Wait until there may be something to do, at most for this time."""
        self._task.wait(seconds)

    def wake(self) -> None:
        """End the present or next `wait`. Any thread."""
        self._task.interrupt()

    def close(self) -> None:
        """Leave the other tasks. They read on."""
        self._reading.close()
        self._task.leave()
        self._session.close()

    def _joined(self) -> _Task:
        return _Task(
            self._backend,
            self.name,
            self._reading,
            clock=self._clock,
            times=self._times,
            progress_s=self._progress_s,
            ends=self._until is Until.NOW,
            bytes_max=self._output.row_bytes_max,
        )


class _Task:
    """One membership of a task: a session of the group of the source. See `LocalSession`.

    The runtime's threads leave what they ask for in a queue; the thread of the run obeys.
    """

    def __init__(
        self,
        backend: Backend,
        source: str,
        reading: SplitReading,
        *,
        clock: Clock,
        times: Times,
        progress_s: float,
        ends: bool,
        bytes_max: int,
    ) -> None:
        self.id = secrets.token_hex(6)
        self.group = task_group(source)
        self._clock = clock
        self._changed = threading.Condition()
        self._asked: deque[Callable[[], None]] = deque()
        self._woken = self._departed = False
        self._error: BaseException | None = None
        self._runtime: Runtime = join(backend, self, times, progress_s, LeaderUnit(backend))
        self._membership = Membership(
            backend, source, self.id, self._runtime.process, clock, times.lease_s
        )
        try:
            self.driver = TaskDriver(
                backend,
                source,
                TaskMachine(self.id, ends=ends),
                reading,
                self._membership,
                clock=clock,
                bytes_max=bytes_max,
                make_id=lambda: secrets.token_hex(16),
            )
            # A task knows what the others have said before they know of it.
            while self.driver.hear():
                pass
            self._membership.enter()
        except BaseException:
            self._runtime.leave(self.id)
            raise
        self._await()
        self._runtime.post(Subscribed(self.id, self.group, REVOKE_S))

    # What the runtime calls.

    def install(self, unit: str, epoch: int) -> None:
        """Lead the tasks of the source."""
        self._ask(lambda: self.driver.lead(epoch))

    def drain(self, unit: str, epoch: int) -> None:
        """Lead no longer."""

        def follow() -> None:
            self.driver.follow()
            self._runtime.post(Drained(self.id, unit, epoch, 0))

        self._ask(follow)

    def drop(self, unit: str, epoch: int) -> None:
        """Lead no longer."""
        self._ask(self.driver.follow)

    def departed(self) -> None:
        """Learn that the group knows that the task leaves."""
        with self._changed:
            self._departed = True
            self._changed.notify_all()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read the topics."""
        self._ask(self._await)

    def store_changed(self) -> None:
        """Look for members that have joined or left."""

        def look() -> None:  # maybe before there is a driver
            self.driver.look_for_members()

        self._ask(look)

    def save(self) -> None:
        """Do nothing: everything is stored at once."""

    def fail(self, error: BaseException) -> None:
        """End the run with this error."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    # What the run calls.

    def obey(self) -> None:
        """Do what the runtime has asked for. Raises the error that ended it."""
        while True:
            with self._changed:
                self._woken = False
                if self._error is not None:
                    raise self._error
                if not self._asked:
                    return
                asked = self._asked.popleft()
            asked()

    def wait(self, seconds: float) -> None:
        """Wait until the runtime asks for something."""
        with self._changed:
            if not (self._woken or self._asked or self._error):
                self._changed.wait(seconds)
            self._woken = False

    def interrupt(self) -> None:
        """End the present or next `wait`."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def leave(self) -> None:
        """Leave the group."""
        self._runtime.post(Unsubscribed(self.id))
        deadline = self._clock.monotonic() + LEAVE_S
        with self._changed:
            while not self._departed and not self._error and self._clock.monotonic() < deadline:
                while self._asked:  # a drain of the unit must be answered
                    self._asked.popleft()()
                self._changed.wait(0.05)
        try:
            self._membership.leave()
        except Error as error:
            _log.warning("%s: task %s did not leave in order: %s", self.group, self.id, error)
        self._runtime.leave(self.id)

    def _ask(self, act: Callable[[], None]) -> None:
        with self._changed:
            self._asked.append(act)
            self._changed.notify_all()

    def _await(self) -> None:
        """Have `wake` called when a topic has more than was read."""
        topics = (self.driver.sync, self.driver.heartbeat)
        offsets = {topic.partition: topic.next_offset for topic in topics}
        self._runtime.await_records(self.id, offsets)
