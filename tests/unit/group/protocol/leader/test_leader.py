"""A leader: its answers to events, and the actions it requests."""

from __future__ import annotations

import msgspec
import pytest

from tailrace.group.protocol.actions import ReadGrants, Send, WriteHistory
from tailrace.group.protocol.events import Tick, UnitsRead
from tailrace.group.protocol.leader.borrowers import REFUSED_MAX, Borrowers
from tailrace.group.protocol.leader.events import FromBorrower, ProcessLost
from tailrace.group.protocol.leader.leader import Leader
from tailrace.group.protocol.messages import (
    Disconnect,
    Grant,
    HeldUnit,
    Invalidate,
    LeaderWanted,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import Basis, StoredGrant, Unit, UnitState

GROUP, TERM, UNIT = "billing", 7, "orders/0.0"


def a_leader(*grants: StoredGrant) -> Leader:
    """Return a leader that was just elected, and found these grants."""
    return Leader(GROUP, TERM, Times(), grants, adopt_until=10.0, now=0.0)


@pytest.mark.parametrize(
    "message",
    [
        UpdateProgress(GROUP, "stranger", UNIT, epoch=5, mark=60),
        RevokeFinished(GROUP, "stranger", UNIT, epoch=5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_unknown_borrower_gets_that_answer_to_every_message(
    message: UpdateProgress | RevokeFinished,
) -> None:
    answer = Send("elsewhere", Invalidate(GROUP, "stranger", TERM))
    assert a_leader().handle(FromBorrower("elsewhere", message), 1.0) == [answer]


def test_an_unknown_borrower_that_leaves_gets_no_answer() -> None:
    assert a_leader().handle(FromBorrower("elsewhere", Disconnect(GROUP, "stranger")), 1.0) == []


def test_a_borrower_whose_lease_expired_must_connect_under_another_name() -> None:
    """A grant may still be on its way to it, although the unit has another owner by now."""
    leader = a_leader()
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    leader.handle(FromBorrower("b", wanted), 1.0)
    leader.handle(ProcessLost("b", "lease expired"), 5.0)
    refused = Send("b", Invalidate(GROUP, "b.1", TERM, wanted=True))
    assert leader.handle(FromBorrower("b", wanted), 6.0) == [refused]
    assert "b.1" not in leader.members
    leader.handle(FromBorrower("b", msgspec.structs.replace(wanted, borrower="b.2")), 6.0)
    assert "b.2" in leader.members


def test_a_leader_remembers_a_bounded_number_of_borrowers_to_refuse() -> None:
    borrowers = Borrowers()
    borrowers.refuse([str(number) for number in range(REFUSED_MAX + 1)])
    assert [borrowers.refuses(str(number)) for number in (0, 1, REFUSED_MAX)] == [False, True, True]


@pytest.mark.parametrize("fenced", [True, False])
def test_a_new_leader_revokes_the_units_that_a_seek_has_fenced_and_no_others(fenced: bool) -> None:
    leader = a_leader(StoredGrant(UNIT, "b.1", "b", epoch=5, fenced=fenced))
    wanted = LeaderWanted(
        GROUP, "b.1", (HeldUnit(UNIT, 5),), revoke_timeout_s=35.0, roster_version=1
    )
    sent = leader.handle(FromBorrower("b", wanted), 1.0) + leader.handle(Tick(), 1.0)
    assert (Send("b", Revoked(GROUP, "b.1", TERM, UNIT, 5)) in sent) == fenced


@pytest.mark.parametrize("held_epoch", [4, 5])
def test_a_new_leader_grants_again_only_units_held_at_an_older_epoch(
    held_epoch: int,
) -> None:
    """The borrower held the unit, and the grant of the last leader did not reach it."""
    leader = a_leader(StoredGrant(UNIT, "b.1", "b", epoch=5, fenced=False))
    wanted = LeaderWanted(
        GROUP, "b.1", (HeldUnit(UNIT, held_epoch),), revoke_timeout_s=35.0, roster_version=1
    )
    sent = leader.handle(FromBorrower("b", wanted), 1.0) + leader.handle(Tick(), 1.0)
    granted = Send("b", Grant(GROUP, "b.1", TERM, UNIT, 5)) in sent
    assert granted == (held_epoch == 4)


@pytest.mark.parametrize(("sought_at", "reads"), [(TERM - 1, False), (TERM + 1, True)])
def test_a_new_leader_reads_the_grants_again_if_a_seek_came_before_it_read_the_units(
    sought_at: int, reads: bool
) -> None:
    """The seek may have fenced grants after the leader was elected."""
    leader = a_leader(StoredGrant(UNIT, "b.1", "b", epoch=5, fenced=False))
    leader.handle(UnitsRead(GROUP, Basis((), ((f"group-seek/{GROUP}/orders", sought_at),))), 1.0)
    assert (ReadGrants(GROUP, TERM) in leader.handle(Tick(), 1.0)) == reads


def test_history_gives_the_reason_of_each_revocation() -> None:
    """Consumer `b.2` loses both of its partitions, and gets one of the other consumer's."""
    units = [f"orders/0.{number}" for number in range(4)]
    grants = [
        StoredGrant(unit, f"b.{1 + number // 2}", "b", 5) for number, unit in enumerate(units)
    ]
    leader = a_leader(*grants)
    for name in ("b.1", "b.2"):
        held = tuple(HeldUnit(grant.unit, 5) for grant in grants if grant.borrower == name)
        leader.handle(FromBorrower("b", LeaderWanted(GROUP, name, held, 35.0, 1)), 1.0)

    def plan(*states: UnitState) -> dict[str, str]:
        basis = Basis(tuple(map(Unit, units, states)), (("topic/orders", 1),))
        leader.handle(UnitsRead(GROUP, basis), 1.0)
        actions = leader.handle(Tick(), 1.0)
        return {each.unit: each.why for each in actions if isinstance(each, WriteHistory)}

    assert plan(*[UnitState.OPEN] * 4) == {}
    assert plan(UnitState.OPEN, UnitState.OPEN, UnitState.FINISHED) == {
        "orders/0.1": "rebalanced: partitions opened or closed",
        "orders/0.2": "finished: every record is acknowledged",
        "orders/0.3": "deleted: it no longer exists",
    }
