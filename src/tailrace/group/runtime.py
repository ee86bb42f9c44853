"""A process's part in its groups: one runtime for all sessions of an opened hub.

It begins with the first session and ends with the last. Four threads: the *loop* owns the machine
that decides, the *worker* does what is wanted of the store, the *tide* watches commits, *saving*
commits acknowledgements. What none of them expected ends the runtime, and is raised by the
iterations of all its sessions.

A process is known to others by a random name, under which it holds `process/NAME` for as long as it
takes part. A forked child takes no part in what its parent does.
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
from tailrace.errors import Busy, HubClosed, UnknownGroup, UnknownTopic
from tailrace.group.definition import check_group
from tailrace.group.events import Event
from tailrace.group.local_session import LocalSession
from tailrace.group.loop import GroupMachine, Loop
from tailrace.group.probing import HOLDS, Probing
from tailrace.group.registry import Registry
from tailrace.group.saving import Saving
from tailrace.group.tide import Tide, UnitsChanged
from tailrace.group.times import Times
from tailrace.group.transport import Receiver, Transport, WithinProcess
from tailrace.group.worker import Worker
from tailrace.log.schema import settle_arrow
from tailrace.message import Partition

HAND_OVER_S: Final = 1.0
"""How long a process that ends may take to let go of what it leads."""
END_S: Final = 10.0
"""How long its threads may take to end, all in all."""

_log = logging.getLogger(__name__)


class Runtime:
    """What sessions of a process share. Made by `join`. Every method is for any thread."""

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
        settle_arrow()  # whoever takes over has nothing to load first
        self.process = secrets.token_hex(8)
        self.backend = backend
        self._members: dict[str, LocalSession] = {}
        self._mutex = threading.Lock()
        self._error: BaseException | None = None
        self._machine = machine(self.process, times)
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._hold = backend.hold(HOLDS + self.process, owner)
        with contextlib.ExitStack() as undo:
            undo.callback(self._hold.release)
            self._worker = Worker(
                backend, self.process, owner, clock, tell=self.tell, check=self._check
            )
            self._saving = Saving(self._members, progress_interval_s, clock)
            self._tide = Tide(
                backend,
                self.process,
                self._hold,
                self._members,
                tell=self._post,
                check=self._check,
            )
            undo.callback(self._tide.close)
            self._loop = Loop(
                self._machine,
                self._members,
                clock,
                transport=lambda receiver: _transport(backend, self.process, receiver),
                submit=self._worker.submit,
                beat=self._tide.beat,
                look=Probing(backend.beats, clock, times.lease_s).look,
            )
            undo.callback(self._loop.close)
            self._threads = [
                threading.Thread(
                    target=self._run, args=(part.run,), name=f"tailrace {name}", daemon=True
                )
                for name, part in (
                    ("loop", self._loop),
                    ("worker", self._worker),
                    ("tide", self._tide),
                    ("saving", self._saving),
                )
            ]
            for thread in self._threads:
                thread.start()
            undo.pop_all()

    def add(self, member: LocalSession) -> None:
        """Count a session in; see `join`."""
        self._members[member.id] = member
        if self._error is not None:
            member.fail(self._error)

    def tell(self, event: Event) -> None:
        """Have the machine handle an event, unless all is over. Never waits."""
        self._post(event)

    def until(self, session: str) -> float:
        """Up to when the session may hand out what it owns, by the monotonic clock.

        Raises what ended the runtime, if something did.
        """
        if self._error is not None:
            raise self._error
        return self._machine.until(session)

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Have the session woken; see `Tide.await_records`."""
        if self._error is None:
            self._tide.await_records(session, offsets)

    def progress_due(self, session: str) -> None:
        """Have `save` of the session called within the interval. Cheap."""
        if self._error is None:
            self._saving.due(session)

    def save_soon(self, session: str) -> None:
        """Have `save` of the session called at once."""
        if self._error is None:
            self._saving.soon(session)

    def leave(self, session: str) -> None:
        """The session is no more. With the last one the runtime ends, which takes a bounded time.

        Not for the threads that call the session.
        """
        with _joining:
            self._members.pop(session, None)
            self._tide.forget(session)
            last = not self._members and _forget(self)
        if last:
            self._end(HAND_OVER_S)

    def close(self, error: BaseException) -> None:
        """End it, whoever is in it; sessions raise the error."""
        with _joining:
            _forget(self)
        self._fail_members(error)
        self._end(0.0)

    def abandon(self) -> None:
        """In a forked child, in which no thread of it runs: sessions raise that."""
        self._mutex = threading.Lock()
        self._members.clear()
        self._error = HubClosed("a consumer does not outlive a fork", "open one in the child")

    def _post(self, event: Event | UnitsChanged) -> None:
        if self._error is None:
            self._loop.tell(event)

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except HubClosed as error:
            self._fail(error)
        except BaseException as error:
            _log.exception("consuming in groups failed")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """On a thread of its own: let all others end, and others take over at once."""
        _forget(self)
        self._fail_members(error)
        for part in (self._loop, self._worker, self._tide, self._saving):
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
        """Fail the sessions of a group in which there is nothing to consume any more."""
        # Who is there first, then the look: whoever comes later has found the group made again.
        members = [member for member in list(self._members.values()) if member.group == group]
        try:
            check_group(self.backend, group)
        except (UnknownGroup, UnknownTopic) as error:
            for member in members:
                member.fail(error)

    def _end(self, hand_over_s: float) -> None:
        """End the loop, then what it asked the store for, then the rest; and give up the name."""
        loop, worker, *others = self._threads
        deadline = time.monotonic() + END_S
        self._loop.finish(hand_over_s)
        loop.join(END_S)
        self._worker.finish()
        worker.join(max(0.0, deadline - time.monotonic()))
        for part in (self._loop, self._worker, self._tide, self._saving):
            part.stop()
        for thread in (loop, worker, *others):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _log.warning("%s did not end within %g s", thread.name, END_S)
        with self._mutex:
            self._error = self._error or HubClosed("this consumer is closed", "open another")
        self._hold.release()


_joining = threading.Lock()
_runtimes: Final[dict[Backend, Runtime]] = {}


def join(
    backend: Backend, member: LocalSession, times: Times, progress_interval_s: float
) -> Runtime:
    """Count a session in, and give it the runtime of its process; the first one decides the times.

    Raises what taking part needs and cannot have: `BackendUnavailable`, `OSError`.
    """
    with _joining:
        runtime = _runtimes.get(backend)
        if runtime is None:
            runtime = _runtimes[backend] = Runtime(backend, times, progress_interval_s)
        runtime.add(member)
    return runtime


def close_runtimes(backend: Backend) -> None:
    """End what consumes in groups of a hub that is being closed."""
    runtime = _runtimes.get(backend)
    if runtime is not None:
        runtime.close(HubClosed(f"the hub {backend.name} is closed", "open it again"))


def _forget(runtime: Runtime) -> bool:
    """Let the next session have another runtime; whether it would have had this one."""
    if _runtimes.get(runtime.backend) is not runtime:
        return False
    del _runtimes[runtime.backend]
    return True


def _transport(backend: Backend, process: str, receiver: Receiver) -> Transport:
    directory = backend.meeting_place
    if directory is None:
        return WithinProcess(process, receiver)
    # Here, because processes that cannot meet need not load it.
    from tailrace.group.sockets import Sockets, processes_at, remove_socket

    for other in processes_at(directory):
        if backend.beats(HOLDS + other) is None:
            remove_socket(directory, other)
            with contextlib.suppress(Busy):
                backend.hold(HOLDS + other, "whoever removes what it left").release()
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


# Whoever is still in a group when the program ends need not be found dead.
atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
