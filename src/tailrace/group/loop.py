"""The thread that owns a process's machine: what it is told, in order, and what comes of it.

All that happens goes through one queue; whatever blocks is done elsewhere and answers through it.
The thread sleeps until something comes or the machine's deadline does, and there is no other timer,
however many sessions there are.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, HubClosed
from tailrace.group.actions import (
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
from tailrace.group.events import Event, Gone, Received, Stalled, Tick
from tailrace.group.local_session import LocalSession
from tailrace.group.messages import Message
from tailrace.group.tide import UnitsChanged
from tailrace.group.transport import Receiver, Transport
from tailrace.group.trouble import Trouble
from tailrace.group.worker import StoreAction
from tailrace.machine import Machine

FLUSH_S: Final = 0.2
"""How long its last messages may take to leave a process that ends."""
SECOND_LOOKS_S: Final = (0.0, 0.001, 0.004, 0.02, 0.1, 0.5)
"""When to look at a process whose connection has ended: dying, it closes its files one by one."""
PROMPT_S: Final = 0.1
_PROMPT_TRIES_MAX: Final = 10
_FINISHING_S: Final = 0.005
"""How often a machine that is to let go of everything is told the time."""

_log = logging.getLogger(__name__)


class GroupMachine(Machine[Event, Action], Protocol):
    """What `tailrace.group.registry.Registry` is."""

    @property
    def leads(self) -> list[str]:
        """The groups that this process leads."""

    def until(self, session: str) -> float:
        """Up to when a session may hand out what it owns. Any thread."""


class _Doubt:
    """When to look again at a process whose connection has ended."""

    __slots__ = ("looks", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.looks = list(reversed(SECOND_LOOKS_S))

    @property
    def look_at(self) -> float:
        return self.since + self.looks[-1]


class Loop:
    """See the module. `tell`, `finish` and `stop` are for any thread."""

    def __init__(
        self,
        machine: GroupMachine,
        members: Mapping[str, LocalSession],
        clock: Clock,
        *,
        transport: Callable[[Receiver], Transport],
        submit: Callable[[StoreAction], None],
        beat: Callable[[float], None],
        look: Callable[[str], Gone | Stalled | None],
    ) -> None:
        self._machine = machine
        self._members = members
        self._clock = clock
        self._submit = submit
        self._beat = beat
        self._look = look
        self._posts: deque[Event | UnitsChanged] = deque()
        self._doubts: dict[str, _Doubt] = {}
        self._finish_at: float | None = None
        self._stopped = False
        self._told = True
        self._next_deadline: float | None = None
        self._trouble = Trouble(_log, "looking at other processes")
        self._transport = transport(self)

    def tell(self, event: Event | UnitsChanged) -> None:
        """Have something handled after all that came before it."""
        self._posts.append(event)
        self._transport.wake()

    def finish(self, within_s: float) -> None:
        """Let `run` end once nothing is led from here, at the latest after a time."""
        self._finish_at = self._clock.monotonic() + within_s
        self._transport.wake()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped = True
        self._transport.wake()

    def close(self) -> None:
        """Give back what it holds, for the case that it never ran."""
        self._transport.close()

    def run(self) -> None:
        """What the thread does."""
        try:
            while not self._ended():
                self._transport.poll(self._patience_s())
                self._take_in()
                if self._is_due():
                    self._tick()
            self._transport.flush(FLUSH_S)
        finally:
            self._transport.close()

    def received(self, sender: str, message: Message) -> None:
        """A message came."""
        self._posts.append(Received(sender, message))

    def parted(self, process: str) -> None:
        """A connection ended."""
        self._doubts[process] = _Doubt(self._clock.monotonic())

    def _ended(self) -> bool:
        if self._finish_at is None:
            return self._stopped
        idle = not self._machine.leads and not self._posts
        return self._stopped or idle or self._clock.monotonic() >= self._finish_at

    def _patience_s(self) -> float | None:
        if self._posts:
            return 0.0
        moments = [doubt.look_at for doubt in self._doubts.values()]
        deadline = self._deadline()
        if deadline is not None:
            moments.append(deadline)
        if self._finish_at is not None:
            moments.append(self._clock.monotonic() + _FINISHING_S)
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def _is_due(self) -> bool:
        if self._finish_at is not None:
            return True
        deadline = self._deadline()
        return deadline is not None and self._clock.monotonic() >= deadline

    def _deadline(self) -> float | None:
        """The machine's deadline, asked for once after each event: it may have much to look at."""
        if self._told:
            self._told = False
            self._next_deadline = self._machine.deadline()
        return self._next_deadline

    def _take_in(self) -> None:
        """Hand in what waits by now; what comes of it waits for the next time."""
        self._look_again()
        for _ in range(len(self._posts)):
            event = self._posts.popleft()
            if isinstance(event, UnitsChanged):
                self._read_units(event.group)
            else:
                self._handle(event)

    def _tick(self) -> None:
        """Tell the time, after all that came before it.

        If that took long, this process may have been stopped in the middle: then there is more.
        """
        for _ in range(_PROMPT_TRIES_MAX):
            begun = self._clock.monotonic()
            self._transport.poll(0.0)
            self._take_in()
            if self._clock.monotonic() - begun < PROMPT_S:
                break
        self._handle(Tick())

    def _handle(self, event: Event) -> None:
        self._told = True
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
                self._probe(process)
            case Beat(sent_at):
                self._beat(sent_at)
            case _:
                self._submit(action)

    def _read_units(self, group: str | None) -> None:
        for led in self._machine.leads:
            if group in (None, led):
                self._submit(ReadUnits(led))

    def _probe(self, process: str) -> Gone | Stalled | None:
        """Look at a process and post what is wrong with it."""
        try:
            wrong = self._look(process)
        except HubClosed:
            raise
        except (BackendUnavailable, OSError) as error:
            self._trouble.failed(error)
            return None
        self._trouble.worked()
        if wrong is not None:
            self._posts.append(wrong)
        return wrong

    def _look_again(self) -> None:
        now = self._clock.monotonic()
        for process, doubt in list(self._doubts.items()):
            if now >= doubt.look_at:
                doubt.looks.pop()
                if isinstance(self._probe(process), Gone) or not doubt.looks:
                    del self._doubts[process]
