"""The groups that a process leads, and the time for which it leaves others' grants alone."""

from __future__ import annotations

from itertools import count

import pytest

from tailrace.group.protocol.actions import Action, Send
from tailrace.group.protocol.events import Beaten, Elected, UnitsRead
from tailrace.group.protocol.leader.leaders import Leaders
from tailrace.group.protocol.messages import (
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Roster,
    UpdateProgress,
)
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import Basis, StoredGrant

TIMES = Times()
GROUP, TERM, UNIT = "billing", 7, "orders/0.0"
STEP_S = 0.1


def elected(predecessor: str | None) -> Leaders:
    """Return leaders elected at 0, with an earlier grant whose borrower never joins."""
    leaders = Leaders("new", TIMES)
    grant = StoredGrant(UNIT, borrower="cut off.1", process="cut off", epoch=5)
    leaders.begin(Elected(GROUP, TERM, (grant,)), predecessor, 0.0)
    return leaders


def freed_at(leaders: Leaders) -> float:
    """Return the time at which the unit of the absent borrower is freed. Heartbeats continue."""
    leader = leaders.leader(GROUP)
    assert leader is not None
    for now in (number * STEP_S for number in count()):
        leaders.beaten(Beaten(now, ((GROUP, TERM),)), now)
        leaders.tick(now)
        if leader.owner(UNIT) is None:
            return now
    raise AssertionError("never")


def test_grants_of_earlier_terms_are_left_alone_for_a_lease_without_a_former_leader() -> None:
    assert freed_at(elected(predecessor=None)) == pytest.approx(TIMES.free_s, abs=STEP_S)


def test_grants_of_a_former_leader_are_left_alone_while_it_may_act() -> None:
    """A beat of the old leader may have come just before the election: it acts for a lease more,
    and the last process that it answers delivers for another lease."""
    patience_s = TIMES.free_s + TIMES.lease_s
    assert freed_at(elected(predecessor="old")) == pytest.approx(patience_s, abs=STEP_S)


def test_a_probe_after_the_election_that_finds_the_former_leader_stalled_shortens_that() -> None:
    leaders = elected(predecessor="old")
    leaders.predecessor_ended("old", 1.0)
    assert freed_at(leaders) == pytest.approx(1.0 + TIMES.free_s, abs=STEP_S)


@pytest.mark.parametrize(("process", "probed_at"), [("old", -0.5), ("other", 1.0)])
def test_a_probe_before_the_election_or_of_another_process_says_nothing_about_the_former_leader(
    process: str, probed_at: float
) -> None:
    leaders = elected(predecessor="old")
    leaders.predecessor_ended(process, probed_at)
    patience_s = TIMES.free_s + TIMES.lease_s
    assert freed_at(leaders) == pytest.approx(patience_s, abs=STEP_S)


def test_a_leader_acts_for_a_lease_from_the_request_of_its_heartbeat_however_late_the_answer() -> (
    None
):
    leaders = elected(predecessor=None)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    assert leaders.received("b", wanted, 0.0) == []
    leaders.beaten(Beaten(0.0, ((GROUP, TERM),)), 2.0)
    assert leaders.received("b", wanted, TIMES.hold_s - STEP_S)
    assert leaders.received("b", wanted, TIMES.hold_s) == []


def test_after_its_lease_a_leader_answers_pings_without_claiming_to_lead() -> None:
    leaders = elected(predecessor=None)
    leaders.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    leaders.received("b", wanted, 0.1)
    leaders.roster("b", Roster(1, ((GROUP, "b.1"),), ()), 0.2)

    def led(now: float) -> tuple[tuple[str, int], ...]:
        [*_, sent] = leaders.pinged("b", Ping(1, 1), now)
        assert isinstance(sent, Send)
        assert isinstance(sent.message, PingResponse)
        return sent.message.led

    assert led(TIMES.hold_s - STEP_S) == ((GROUP, TERM),)
    assert led(TIMES.hold_s) == ()


def test_a_leader_that_was_stopped_itself_takes_no_silent_process_for_dead() -> None:
    leaders = elected(predecessor=None)
    leader = leaders.leader(GROUP)
    assert leader is not None
    leaders.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    leaders.received("b", wanted, 0.1)

    def lives_at(now: float) -> bool:
        leaders.beaten(Beaten(now, ((GROUP, TERM),)), now)
        leaders.tick(now)
        return "b.1" in leader.members

    woken_at = 10.0
    assert lives_at(woken_at)
    assert lives_at(woken_at + TIMES.hold_s - STEP_S)
    assert lives_at(woken_at + TIMES.free_s - STEP_S)
    assert not lives_at(woken_at + TIMES.free_s)


def wanted(borrower: str) -> LeaderWanted:
    return LeaderWanted(GROUP, borrower, (), revoke_timeout_s=35.0, roster_version=1)


def test_a_borrower_that_joins_before_the_first_heartbeat_is_admitted_once_with_it() -> None:
    leaders = elected(predecessor=None)
    leader = leaders.leader(GROUP)
    assert leader is not None
    for borrower in ("b.1", "b.2"):
        assert leaders.received("b", wanted(borrower), 0.0) == []
    assert leaders.received("b", UpdateProgress(GROUP, "b.1", UNIT, epoch=5, mark=60), 0.0) == []
    assert leaders.tick(0.0) == []
    leaders.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.1)
    assert admitted(leaders.tick(0.1)) == {"b.1", "b.2"}
    assert admitted(leaders.tick(5.0)) == set()


def test_a_borrower_that_joins_after_the_lease_is_admitted_at_the_next_heartbeat() -> None:
    leaders = Leaders("new", TIMES)
    leaders.begin(Elected(GROUP, TERM, ()), None, 0.0)
    leaders.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    leaders.handle(GROUP, UnitsRead(GROUP, Basis((), ())), 0.0)
    leaders.tick(0.0)
    over = TIMES.hold_s
    assert leaders.received("b", wanted("b.1"), over) == []
    leaders.beaten(Beaten(over, ((GROUP, TERM),)), over)
    assert admitted(leaders.tick(over)) == {"b.1"}


def admitted(actions: list[Action]) -> set[str]:
    """Return the borrowers that are admitted."""
    sent = [action.message for action in actions if isinstance(action, Send)]
    return {each.borrower for each in sent if isinstance(each, LeaderConnectResponse)}
