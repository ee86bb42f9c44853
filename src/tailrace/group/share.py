"""What the units of a session have in common."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.group.events import Event
from tailrace.group.rota import Rota
from tailrace.group.trouble import Trouble
from tailrace.message import Message, Partition
from tailrace.topic.reading import READ_BYTES

if TYPE_CHECKING:
    from tailrace.group.owned import Owned

READ_BYTES_MIN: Final = 64 << 10
"""What a unit may read at once, however many others read too; unless it is to be less for all."""
_NEVER: Final = float("-inf")

_log: Final = logging.getLogger("tailrace.group")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a session consumes."""

    attempts: int
    redelivery_records_max: int
    prefetch_bytes: int
    revoke_timeout_s: float


class Share:
    """The units of a session, what they are for, and how they speak to it."""

    def __init__(
        self,
        backend: Backend,
        group: str,
        *,
        session: str,
        terms: Terms,
        clock: Clock,
        decoder: Callable[[str], Callable[[Message[Any]], Any]],
        tell: Callable[[Event], None],
        acked: Callable[[], None],
    ) -> None:
        self.backend = backend
        self.group = group
        self.session = session
        self.terms = terms
        self.clock = clock
        self.decoder = decoder
        self.tell = tell
        self.acked = acked
        self.lock = threading.Condition()
        self.rota = Rota(terms.prefetch_bytes)
        """Its units. With the lock."""
        self.failing = False
        """Whether a delivery may have used up its attempts without the loop being told."""
        self.version = 0
        """Another after everything that a waiting consumer should look at."""
        self.limit = _NEVER
        """Up to when deliveries may be handed out; minus infinity once anything changed."""
        self.stops: Mapping[Partition, int] | None = None
        """Offsets to stop at, in these partitions alone; None to go on for ever."""
        self.trouble = Trouble(_log, f"consuming in group {group}")
        """Over with the next commit: there may be much to read where nothing can be written."""

    def news(self) -> None:
        """Have the consumer look again before it hands out any more. With the lock."""
        self.limit = _NEVER
        self.version += 1
        self.lock.notify_all()

    def stir(self, owned: Owned) -> None:
        """Something happened to a unit: have a consumer that waits look at it. With the lock."""
        if self.rota.stir(owned):
            self.version += 1
            self.lock.notify_all()

    @property
    def read_bytes(self) -> int:
        """About how much a unit should read now, for all that read to have something."""
        wanted = self.terms.prefetch_bytes // max(1, self.rota.size)
        return min(max(wanted, READ_BYTES_MIN), READ_BYTES, self.terms.prefetch_bytes)
