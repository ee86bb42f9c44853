"""The runtime of a process: one for all sessions of an opened hub.

The runtime starts with the first session and ends with the last. It has four threads: the *loop*
owns the protocol machine, the *store worker* executes store actions, the *store watcher* watches
commits, and the *progress saver* commits acknowledgements. An unexpected exception in one of them
ends the runtime, and every session's iteration raises it.

Other processes know a process by a random name. The process holds `process/NAME` for as long as its
runtime runs. A forked child is no member of its parent's groups.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock, SystemClock
from tailrace.delivery.process_gate import ProcessGate
from tailrace.errors import Busy, HubClosed, UnknownGroup, UnknownTopic
from tailrace.group.protocol.events import Event
from tailrace.group.protocol.registry import Registry
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.contract import LocalSession
from tailrace.group.runtime.leader_reporter import LeaderReporter
from tailrace.group.runtime.liveness import Liveness
from tailrace.group.runtime.loop import GroupMachine, Loop
from tailrace.group.runtime.progress_saver import ProgressSaver
from tailrace.group.runtime.store_watcher import StoreWatcher, UnitsChanged
from tailrace.group.runtime.store_worker import StoreWorker
from tailrace.group.runtime.transport import Receiver, Transport, WithinProcess
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.presence import HOLDS
from tailrace.group.store.unit_source import UnitSource, UnitSources
from tailrace.log.schema import import_pandas_now
from tailrace.message import Partition
from tailrace.reporting.reporters import reporters_of

RESIGN_S: Final = 1.0
"""The longest time that a closing process may take to resign from the groups that it leads."""
END_S: Final = 10.0
"""The longest time that all threads together may take to end."""

_log = logging.getLogger(__name__)


class Runtime:
    """The runtime of one process and hub, made by `join`. Any thread may call its methods."""

    def __init__(
        self,
        backend: Backend,
        times: Times,
        progress_interval_s: float,
        *,
        machine: Callable[[str, Times], GroupMachine] = Registry,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        import_pandas_now()  # so that the first delivery has nothing to load
        self.process = secrets.token_hex(8)
        self.backend = backend
        self.gate = ProcessGate(threading.Lock())
        """Where the workers of subscriptions in this process begin and end their calls."""
        self._members: dict[str, LocalSession] = {}
        self._sources = UnitSources(PartitionUnits(backend))
        self._mutex = threading.Lock()
        self._error: BaseException | None = None
        self._machine = machine(self.process, times)
        self._reporter = LeaderReporter(lambda: self._machine.leads)
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._hold = backend.hold(HOLDS + self.process, owner)
        with contextlib.ExitStack() as undo:
            undo.callback(self._hold.release)
            self._worker = StoreWorker(
                backend,
                self.process,
                owner,
                clock,
                self._sources,
                post=self.post,
                check=self._check,
            )
            self._saver = ProgressSaver(self._members, progress_interval_s, clock)
            self._watcher = StoreWatcher(
                backend,
                self.process,
                self._hold,
                self._members,
                self._sources,
                post=self.post,
                check=self._check,
            )
            undo.callback(self._watcher.close)
            self._loop = Loop(
                self._machine,
                self._members,
                clock,
                transport=lambda receiver: _transport(backend, self.process, receiver),
                submit=self._worker.submit,
                beat=self._watcher.beat,
                probe=Liveness(backend.beats, clock, times.lease_s).probe,
            )
            undo.callback(self._loop.close)
            self._threads = [
                threading.Thread(
                    target=self._run, args=(part.run,), name=f"tailrace {name}", daemon=True
                )
                for name, part in (
                    ("loop", self._loop),
                    ("store worker", self._worker),
                    ("store watcher", self._watcher),
                    ("progress saver", self._saver),
                )
            ]
            for thread in self._threads:
                thread.start()
            undo.pop_all()
        reporters_of(backend).add(self._reporter)

    def add(self, member: LocalSession, units: UnitSource | None = None) -> None:
        """Add a session; see `join`."""
        if units is not None:
            self._sources.add(member.group, units)
        self._members[member.id] = member
        if self._error is not None:
            member.fail(self._error)

    def post(self, event: Event | UnitsChanged) -> None:
        """Queue an event for the protocol machine, unless the runtime has ended. Never blocks."""
        if self._error is None:
            self._loop.post(event)

    def until(self, session: str) -> float:
        """Return the monotonic time up to which the session may deliver.

        Raises the error that ended the runtime.
        """
        if self._error is not None:
            raise self._error
        return self._machine.until(session)

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Wake the session for records; see `StoreWatcher.await_records`."""
        if self._error is None:
            self._watcher.await_records(session, offsets)

    def progress_due(self, session: str) -> None:
        """Call `save` of the session within the progress interval. Cheap."""
        if self._error is None:
            self._saver.due(session)

    def save_soon(self, session: str) -> None:
        """Call `save` of the session at once."""
        if self._error is None:
            self._saver.soon(session)

    def leave(self, session: str) -> None:
        """Remove a session. With the last session the runtime ends, which takes a bounded time.

        The threads of the runtime itself must not call this.
        """
        with _joining:
            self._members.pop(session, None)
            self._watcher.forget(session)
            last = not self._members and _forget(self)
        if last:
            self._end(RESIGN_S)

    def close(self, error: BaseException) -> None:
        """End the runtime for all its sessions; they raise the error."""
        with _joining:
            _forget(self)
        self._fail_members(error)
        self._end(0.0)

    def abandon(self) -> None:
        """End the runtime in a forked child, where none of its threads runs."""
        self._mutex = threading.Lock()
        self._members.clear()
        self._error = HubClosed(
            "a consumer cannot be used after a fork", "open one in the child process"
        )

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except HubClosed as error:
            self._fail(error)
        except BaseException as error:
            _log.exception("consuming in groups failed")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the other threads. Called by a thread of the runtime; other processes take over."""
        _forget(self)
        self._fail_members(error)
        for part in (self._loop, self._worker, self._watcher, self._saver):
            part.stop()
        self._hold.release()

    def _fail_members(self, error: BaseException) -> None:
        with self._mutex:
            if self._error is not None:
                return
            self._error = error
        for member in list(self._members.values()):
            member.fail(error)

    def _check(self, group: str) -> None:
        """Fail the sessions of a group that has ended."""
        # List the sessions before the check: a session added later joined a group made again.
        members = [member for member in list(self._members.values()) if member.group == group]
        try:
            self._sources.of(group).check(group)
        except (UnknownGroup, UnknownTopic) as error:
            for member in members:
                member.fail(error)

    def _end(self, resign_s: float) -> None:
        """End the loop, then the store worker, then the other threads; release the hold."""
        reporters_of(self.backend).retire(self._reporter)
        loop, worker, *others = self._threads
        deadline = time.monotonic() + END_S
        self._loop.finish(resign_s)
        loop.join(END_S)
        self._worker.finish()
        worker.join(max(0.0, deadline - time.monotonic()))
        for part in (self._loop, self._worker, self._watcher, self._saver):
            part.stop()
        for thread in (loop, worker, *others):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _log.warning("thread %r did not end within %g s", thread.name, END_S)
        with self._mutex:
            self._error = self._error or HubClosed("this consumer is closed", "open another")
        self._hold.release()


_joining = threading.Lock()
_runtimes: Final[dict[Backend, Runtime]] = {}


def join(
    backend: Backend,
    member: LocalSession,
    times: Times,
    progress_interval_s: float,
    units: UnitSource | None = None,
) -> Runtime:
    """Add a session to the runtime of its process, and return that runtime.

    The first session of a process determines the times. `units` is the source of the units of the
    session's group; None means partitions of topics. Raises `BackendUnavailable` and `OSError`.
    """
    with _joining:
        runtime = _runtimes.get(backend)
        if runtime is None:
            runtime = _runtimes[backend] = Runtime(backend, times, progress_interval_s)
        runtime.add(member, units)
    return runtime


def close_runtimes(backend: Backend) -> None:
    """End the runtime of a hub that is being closed."""
    runtime = _runtimes.get(backend)
    if runtime is not None:
        runtime.close(HubClosed(f"the hub {backend.name} is closed", "open it again"))


def _forget(runtime: Runtime) -> bool:
    """Give the next session another runtime. True if it would have got this one."""
    if _runtimes.get(runtime.backend) is not runtime:
        return False
    del _runtimes[runtime.backend]
    return True


def _transport(backend: Backend, process: str, receiver: Receiver) -> Transport:
    directory = backend.meeting_place
    if directory is None:
        return WithinProcess(process, receiver)
    # Imported here: a backend without a directory for sockets does not need the module.
    from tailrace.group.runtime.sockets import Sockets, processes_at, remove_socket

    for other in processes_at(directory):
        if backend.beats(HOLDS + other) is None:
            remove_socket(directory, other)
            with contextlib.suppress(Busy):
                backend.hold(HOLDS + other, "the removal of a dead process").release()
    return Sockets(directory, process, receiver)


def _close_all() -> None:
    for backend in list(_runtimes):
        close_runtimes(backend)


def _abandon_all() -> None:
    global _joining  # noqa: PLW0603
    _joining = threading.Lock()
    for runtime in list(_runtimes.values()):
        runtime.abandon()
    _runtimes.clear()


# A program that exits leaves its groups in order, so that other processes need not find it dead.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
