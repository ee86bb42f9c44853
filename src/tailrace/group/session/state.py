"""The state of a session that its threads share: the machine, its lock, and what I/O needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.group.outage import Outage
from tailrace.group.protocol.events import Event
from tailrace.group.session.machine import SessionMachine, SessionOptions
from tailrace.message import Message

if TYPE_CHECKING:
    from tailrace.group.session.session_unit import SessionUnit

_log: Final = logging.getLogger("tailrace.group")


class SessionState:
    """What the units of a session have in common.

    `post` passes an event to the runtime and never blocks. `resolved` is called after
    each ack and nack.
    """

    def __init__(
        self,
        backend: Backend,
        group: str,
        *,
        session: str,
        options: SessionOptions,
        make_unit: Callable[[SessionState, str, int], SessionUnit],
        clock: Clock,
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
        post: Callable[[Event], None],
        resolved: Callable[[], None],
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.decoder = decoder
        self.resolved = resolved
        self.lock = threading.Condition()
        """For the machine and its units. Held for moments, and never while the backend is
        called."""
        self.machine: SessionMachine[SessionUnit] = SessionMachine(
            session,
            group,
            options,
            make_unit=lambda unit, epoch: make_unit(self, unit, epoch),
            notify=self.lock.notify_all,
        )
        self.outage = Outage(_log, f"consuming in group {group}")
        """Ends with the next commit: records can often be read where none can be written."""
        self._post = post

    def post(self, events: Iterable[Event]) -> None:
        """Pass events to the runtime. Without the lock."""
        for event in events:
            self._post(event)
