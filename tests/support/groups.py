"""The group `billing` in the store: grants, acknowledgements under a fence, and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.backend.contract import Backend, Fence, Transaction
from tailrace.delivery.delivery import Delivery
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.protocol.actions import CommitGrants, Elect, NewGrant
from tailrace.group.protocol.events import Elected, GrantsCommitted, GrantsRefused, GrantsUnknown
from tailrace.group.protocol.unit import Basis, UnitState
from tailrace.group.store.definition import consumer_name, unit_fence
from tailrace.group.store.grants import commit_grants, elect, find_leader
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.streams import read_basis
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.topic.ledger import Progress
from tests.support.topics import end_offsets

GROUP = "billing"
FIRST = Partition("orders", 0, 0)


def lead(backend: Backend, process: str = "p1") -> Elected:
    """Elect a process as the leader, whichever process led before."""
    entry = find_leader(backend, GROUP).entry
    won = elect(
        backend, process, Elect(GROUP, 0 if entry is None else entry.term), PartitionUnits(backend)
    )
    assert isinstance(won, Elected)
    return won


def grant(
    backend: Backend, leader: Elected, unit: str, basis: Basis | None = None, replaces: int = 0
) -> GrantsCommitted | GrantsRefused | GrantsUnknown:
    """Try to grant a unit to a borrower, on the given or the current basis."""
    versions = (basis or read_basis(backend, GROUP)).versions
    new = NewGrant(unit, "b1", "p1", replaces)
    return commit_grants(backend, CommitGrants(GROUP, 1, leader.term, versions, (new,), ()))


def owner(backend: Backend, leader: Elected, unit: str) -> Fence:
    """Grant a unit, also if it has an owner, and return the fence of its new owner."""
    stands = {each.unit: each.epoch for each in leader.grants}
    done = grant(backend, leader, unit, replaces=stands.get(unit, 0))
    assert isinstance(done, GrantsCommitted)
    return Fence(unit_fence(GROUP, unit), done.epoch)


def ack(backend: Backend, unit: str, start: int, end: int, fence: Fence | None = None) -> None:
    """Acknowledge a range of offsets, under the owner's fence or without one."""
    progress = _progress(backend, Partition.parse(unit))
    progress.ack(start, end)
    backend.commit(Transaction(table=progress.writes(), fence=fence))


def ack_all(backend: Backend, unit: str) -> None:
    """Acknowledge every record of a unit."""
    ack(backend, unit, 0, backend.log.bounds(Partition.parse(unit)).end)


def marks(backend: Backend, *units: str) -> list[int]:
    """Return the low-water marks of units."""
    return [_progress(backend, Partition.parse(unit)).mark for unit in units]


def mark(backend: Backend, where: Partition = FIRST) -> int:
    """Return the low-water mark of a partition."""
    return _progress(backend, where).mark


def all_marks(backend: Backend, topic: Topic[Any]) -> dict[str, int]:
    """Return the low-water mark of each partition of a topic."""
    return {unit: mark(backend, Partition.parse(unit)) for unit in end_offsets(topic)}


def unacked_values(topic: Topic[Any]) -> list[Any]:
    """Return the values of a topic that the group has not acknowledged, sorted."""
    found = []
    for unit in end_offsets(topic):
        where = Partition.parse(unit)
        progress = _progress(topic.view.backend, where)
        for batch in topic.batches(where.storage, where.number):
            messages = topic.messages(where, batch)
            found += [m.value for m in messages if not progress.acked(m.offset)]
    return sorted(found)


def for_each(consumer: Consumer[Any], handler: Callable[[Delivery[Any]], None]) -> None:
    """Call a handler with each delivery of a consumer."""
    for delivery in consumer:
        handler(delivery)


def states(backend: Backend) -> dict[str, UnitState]:
    """Return the state of each unit of the group."""
    return {unit.name: unit.state for unit in read_basis(backend, GROUP).units}


def units_in(backend: Backend, state: UnitState) -> set[str]:
    """Return the units of the group that are in a state."""
    return {unit for unit, each in states(backend).items() if each is state}


def _progress(backend: Backend, where: Partition) -> Progress:
    return Progress.load(backend.table, consumer_name(GROUP), where)
