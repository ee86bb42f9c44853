"""The units of a simulated session, and its work with the store for them.

A piece of work reaches the store at one instant, and returns the effect that its answer has later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.backend.contract import Fence, Transaction
from tailrace.delivery.failed_attempts import read_failed
from tailrace.delivery.fetched import FetchedBatch, Resolution
from tailrace.delivery.handed_out import read_handed_out
from tailrace.errors import Fenced
from tailrace.group.session.owned_unit import OwnedUnit
from tailrace.group.store.definition import consumer_name, unit_fence
from tailrace.message import Partition
from tailrace.testing.groups.checks import Checks
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.groups.worker import Answer
from tailrace.testing.unreliable import UnreliableBackend
from tailrace.topic.ledger import Progress

if TYPE_CHECKING:
    from tailrace.testing.groups.session import SimulatedSession

BATCH_RECORDS: Final = 8
"""The most records of one read: few, so that edge cases happen."""


class SimulatedUnit(OwnedUnit):
    """A unit in a simulated process. Implements `tailrace.delivery.fetched.Resolver`."""

    def __init__(self, session: SimulatedSession, unit: str, epoch: int) -> None:
        super().__init__(unit, epoch)
        self.handled = 0
        """The number of its deliveries whose handlers have not returned, counted by the driver."""
        self._session = session

    def ack(self, offset: int, wait: bool) -> None:
        """Acknowledge a delivery. Never waits: a simulated handler takes its time before."""
        self._session.ack(self, offset)

    def nack(self, offset: int, delay_s: float, reason: str) -> Resolution:
        """Schedule the redelivery of a delivery."""
        return self._session.nack(self, offset, delay_s, reason)

    def reject(self, offset: int, reason: str) -> Resolution:
        """Have a delivery fail at once."""
        return self._session.reject(self, offset, reason)


class StoreWork(NamedTuple):
    """Work with the store for a unit. `act` returns the effect that its answer has."""

    owned: SimulatedUnit
    act: Callable[[], Answer]


class SimulatedUnitIO:
    """The work of one session with the store: see `tailrace.group.session.session_unit`.

    Each method calls the store, and returns the effect of the answer on the machine.
    """

    def __init__(
        self,
        session: SimulatedSession,
        storage: SimulatedStorage,
        backend: UnreliableBackend,
        checks: Checks,
    ) -> None:
        self._session = session
        self._storage = storage
        self._backend = backend
        self._checks = checks

    def load(self, owned: SimulatedUnit) -> Answer:
        """Load the ledger, if that was not done yet."""
        if owned.cursor is not None:
            return lambda: None
        session, table = self._session, self._backend.table
        progress = Progress.load(table, consumer_name(session.group), owned.partition)
        handed_out = read_handed_out(table, session.group, owned.name)
        end = self._backend.log.bounds(owned.partition).end if handed_out else 0
        failed = read_failed(table, session.group, owned.name).get(owned.name, {})
        return lambda: session.post(
            session.machine.loaded(owned, progress, handed_out, end, failed)
        )

    def read(self, owned: SimulatedUnit) -> Answer:
        """Read the next records."""
        cursor = owned.cursor
        assert cursor is not None
        start = cursor.read_from
        batch = self._backend.read(lambda: self._read_batch(owned.partition, start))
        return lambda: self._session.machine.fetched(owned, batch)

    def inspect(self, owned: SimulatedUnit) -> Answer:
        """Check if there are more records by now, or never will be."""
        _, end, sealed = self._backend.log.bounds(owned.partition)
        return lambda: self._session.machine.inspected(owned, end, sealed)

    def commit(self, owned: SimulatedUnit) -> Answer:
        """Commit the acknowledgements, under the fence of the grant."""
        session = self._session
        fence = Fence(unit_fence(session.group, owned.name), owned.epoch)
        if owned.removed:
            raise Fenced(*fence, None)
        commit = session.machine.start_commit(owned)
        if commit is None:
            return lambda: None
        if commit.writes:
            self._backend.commit(Transaction(table=commit.writes, fence=fence))
            self._checks.committed(session, owned.name, owned.epoch)
        return lambda: session.post(session.machine.committed(owned, commit))

    def _read_batch(self, partition: Partition, start: int) -> FetchedBatch | None:
        """Return the next records from `start`; None if there are none."""
        records = self._storage.records.get(partition, [])
        first = bisect_left(records, start, key=lambda record: record.offset)
        found = records[first : first + BATCH_RECORDS]
        if len(found) == BATCH_RECORDS:
            next_offset = found[-1].offset + 1
        else:
            next_offset = self._storage.log.bounds(partition).end
        if next_offset <= start:
            return None
        offsets, keys = [record.offset for record in found], [record.key for record in found]
        return FetchedBatch.listed(partition, start, next_offset, offsets, keys)
