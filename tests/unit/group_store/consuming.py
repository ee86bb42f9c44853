"""An owner's part, by hand: grants, acknowledgements under a fence, and what is to be read."""

from __future__ import annotations

from tailrace.backend.contract import Backend, Fence, Transaction
from tailrace.group.actions import CommitGrants, Elect, NewGrant
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.group.events import Elected, GrantsCommitted, GrantsRefused, GrantsUnknown
from tailrace.group.grants import commit_grants, elect, look
from tailrace.group.streams import read_basis
from tailrace.group.unit import Basis, UnitState
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

GROUP = "billing"


def lead(backend: Backend, process: str = "p1") -> Elected:
    """Become the leader, whoever was it before."""
    entry = look(backend, GROUP).entry
    won = elect(backend, process, Elect(GROUP, 0 if entry is None else entry.term))
    assert isinstance(won, Elected)
    return won


def grant(
    backend: Backend, leader: Elected, unit: str, basis: Basis | None = None, replaces: int = 0
) -> GrantsCommitted | GrantsRefused | GrantsUnknown:
    """Try to grant a unit to a borrower, on the basis given or that of now."""
    versions = (basis or read_basis(backend, GROUP)).versions
    new = NewGrant(unit, "b1", "p1", replaces)
    return commit_grants(backend, CommitGrants(GROUP, 1, leader.term, versions, (new,), ()))


def owner(backend: Backend, leader: Elected, unit: str) -> Fence:
    """Grant a unit, whoever had it; the fence of who has it now."""
    stands = {each.unit: each.epoch for each in leader.grants}
    done = grant(backend, leader, unit, replaces=stands.get(unit, 0))
    assert isinstance(done, GrantsCommitted)
    return Fence(unit_fence(GROUP, unit), done.epoch)


def ack(backend: Backend, unit: str, start: int, end: int, fence: Fence | None = None) -> None:
    """Acknowledge a range, as its owner or without asking who that is."""
    progress = Progress.load(backend.table, consumer_name(GROUP), Partition.parse(unit))
    progress.ack(start, end)
    backend.commit(Transaction(table=progress.writes(), fence=fence))


def ack_all(backend: Backend, unit: str) -> None:
    """Acknowledge all that a unit holds."""
    ack(backend, unit, 0, backend.log.bounds(Partition.parse(unit)).end)


def marks(backend: Backend, *units: str) -> list[int]:
    """The low-water marks of units."""
    return [
        Progress.load(backend.table, consumer_name(GROUP), Partition.parse(unit)).mark
        for unit in units
    ]


def states(backend: Backend) -> dict[str, UnitState]:
    """The state of each unit of the group."""
    return {unit.name: unit.state for unit in read_basis(backend, GROUP).units}


def units_in(backend: Backend, state: UnitState) -> set[str]:
    """The units of the group that are in a state."""
    return {unit for unit, each in states(backend).items() if each is state}
