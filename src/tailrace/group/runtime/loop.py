"""The thread that owns the protocol machine of a process: events in, actions out.

All events go through one queue. Anything that blocks runs on another thread and posts its outcome
here. The thread sleeps until an event arrives or the machine's deadline passes; there is no other
timer, for any number of sessions.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, HubClosed
from tailrace.group.outage import Outage
from tailrace.group.protocol.actions import (
    Action,
    Beat,
    Departed,
    Drain,
    Drop,
    Install,
    Probe,
    ReadUnits,
    Send,
)
from tailrace.group.protocol.events import Event, Gone, Received, Stalled, Tick
from tailrace.group.protocol.messages import Message
from tailrace.group.runtime.contract import LocalSession
from tailrace.group.runtime.store_watcher import UnitsChanged
from tailrace.group.runtime.store_worker import StoreAction
from tailrace.group.runtime.transport import Receiver, Transport
from tailrace.machine import Machine

FLUSH_S: Final = 0.2
"""The longest time that the last messages of a closing process may take to be sent."""
DISCONNECT_PROBES_S: Final = (0.0, 0.001, 0.004, 0.02, 0.1, 0.5)
"""When to probe a process after its connection ended: a dying process closes its files one by
one."""
PROMPT_S: Final = 0.1
_PROMPT_TRIES_MAX: Final = 10
_FINISHING_S: Final = 0.005
"""The interval of ticks while `finish` waits for the machine to lead no group."""

_log = logging.getLogger(__name__)


class GroupMachine(Machine[Event, Action], Protocol):
    """The contract of `tailrace.group.protocol.registry.Registry`."""

    @property
    def leads(self) -> list[str]:
        """The groups that this process leads."""

    def until(self, session: str) -> float:
        """Return the time up to which a session may deliver. Any thread."""


class _Disconnected:
    """The probes left for a process whose connection ended."""

    __slots__ = ("probes", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.probes = list(reversed(DISCONNECT_PROBES_S))

    @property
    def probe_at(self) -> float:
        return self.since + self.probes[-1]


class Loop:
    """The loop of one process. Any thread may call `post`, `finish` and `stop`."""

    def __init__(
        self,
        machine: GroupMachine,
        members: Mapping[str, LocalSession],
        clock: Clock,
        *,
        transport: Callable[[Receiver], Transport],
        submit: Callable[[StoreAction], None],
        beat: Callable[[float], None],
        probe: Callable[[str], Gone | Stalled | None],
    ) -> None:
        self._machine = machine
        self._members = members
        self._clock = clock
        self._submit = submit
        self._beat = beat
        self._probe = probe
        self._posts: deque[Event | UnitsChanged] = deque()
        self._disconnected: dict[str, _Disconnected] = {}
        self._finish_at: float | None = None
        self._stopped = False
        self._deadline_stale = True
        self._next_deadline: float | None = None
        self._outage = Outage(_log, "probing other processes")
        self._transport = transport(self)

    def post(self, event: Event | UnitsChanged) -> None:
        """Queue an event."""
        self._posts.append(event)
        self._transport.wake()

    def finish(self, within_s: float) -> None:
        """Make `run` return once the machine leads no group, at the latest after `within_s`."""
        self._finish_at = self._clock.monotonic() + within_s
        self._transport.wake()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped = True
        self._transport.wake()

    def close(self) -> None:
        """Release its resources if `run` was never called."""
        self._transport.close()

    def run(self) -> None:
        """Handle events until `finish` or `stop` is called."""
        try:
            while not self._ended():
                self._transport.poll(self._patience_s())
                self._handle_posts()
                if self._is_due():
                    self._tick()
            self._transport.flush(FLUSH_S)
        finally:
            self._transport.close()

    def received(self, sender: str, message: Message) -> None:
        """Queue a message that arrived."""
        self._posts.append(Received(sender, message))

    def disconnected(self, process: str) -> None:
        """Probe a process whose connection ended."""
        self._disconnected[process] = _Disconnected(self._clock.monotonic())

    def _ended(self) -> bool:
        if self._finish_at is None:
            return self._stopped
        idle = not self._machine.leads and not self._posts
        return self._stopped or idle or self._clock.monotonic() >= self._finish_at

    def _patience_s(self) -> float | None:
        if self._posts:
            return 0.0
        times = [each.probe_at for each in self._disconnected.values()]
        deadline = self._deadline()
        if deadline is not None:
            times.append(deadline)
        if self._finish_at is not None:
            times.append(self._clock.monotonic() + _FINISHING_S)
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def _is_due(self) -> bool:
        if self._finish_at is not None:
            return True
        deadline = self._deadline()
        return deadline is not None and self._clock.monotonic() >= deadline

    def _deadline(self) -> float | None:
        """Return the machine's deadline, computed once after each event: it may be expensive."""
        if self._deadline_stale:
            self._deadline_stale = False
            self._next_deadline = self._machine.deadline()
        return self._next_deadline

    def _handle_posts(self) -> None:
        """Handle the events that are queued now; events that these cause wait for the next call."""
        self._probe_disconnected()
        for _ in range(len(self._posts)):
            event = self._posts.popleft()
            if isinstance(event, UnitsChanged):
                self._read_units(event.group)
            else:
                self._handle(event)

    def _tick(self) -> None:
        """Handle a tick after every event that came before it.

        If reading those events took long, this process may have been stopped meanwhile, and more
        events may have arrived.
        """
        for _ in range(_PROMPT_TRIES_MAX):
            begun = self._clock.monotonic()
            self._transport.poll(0.0)
            self._handle_posts()
            if self._clock.monotonic() - begun < PROMPT_S:
                break
        self._handle(Tick())

    def _handle(self, event: Event) -> None:
        self._deadline_stale = True
        for action in self._machine.handle(event, self._clock.monotonic()):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Send(process, message):
                self._transport.send(process, message)
            case Install(session, unit, epoch):
                if (member := self._members.get(session)) is not None:
                    member.install(unit, epoch)
            case Drain(session, unit, epoch):
                if (member := self._members.get(session)) is not None:
                    member.drain(unit, epoch)
            case Drop(session, unit, epoch):
                if (member := self._members.get(session)) is not None:
                    member.drop(unit, epoch)
            case Departed(session):
                if (member := self._members.get(session)) is not None:
                    member.departed()
            case Probe(process):
                self._post_probe(process)
            case Beat(sent_at):
                self._beat(sent_at)
            case _:
                self._submit(action)

    def _read_units(self, group: str | None) -> None:
        for led in self._machine.leads:
            if group in (None, led):
                self._submit(ReadUnits(led))

    def _post_probe(self, process: str) -> Gone | Stalled | None:
        """Probe a process, and queue its failure."""
        try:
            failure = self._probe(process)
        except HubClosed:
            raise
        except (BackendUnavailable, OSError) as error:
            self._outage.failed(error)
            return None
        self._outage.worked()
        if failure is not None:
            self._posts.append(failure)
        return failure

    def _probe_disconnected(self) -> None:
        now = self._clock.monotonic()
        for process, each in list(self._disconnected.items()):
            if now >= each.probe_at:
                each.probes.pop()
                if isinstance(self._post_probe(process), Gone) or not each.probes:
                    del self._disconnected[process]
