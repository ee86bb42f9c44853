"""What a process does for the groups that it leads, and for how long it leaves others' grants."""

from __future__ import annotations

from itertools import count

import pytest

from tailrace.group.actions import Action, Send
from tailrace.group.events import Beaten, Elected, UnitsRead
from tailrace.group.leading import Leading
from tailrace.group.messages import (
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    Roster,
    UpdateProgress,
)
from tailrace.group.times import Times
from tailrace.group.unit import Basis, StoredGrant

TIMES = Times()
GROUP, TERM, UNIT = "billing", 7, "orders/0.0"
STEP_S = 0.1


def elected(predecessor: str | None) -> Leading:
    """Elected at 0, with a grant of an earlier term whose borrower never comes."""
    leading = Leading("new", TIMES)
    grant = StoredGrant(UNIT, borrower="cut off.1", process="cut off", epoch=5)
    leading.begin(Elected(GROUP, TERM, (grant,)), predecessor, 0.0)
    return leading


def freed_at(leading: Leading) -> float:
    """When it takes the unit from the borrower that does not come. It beats all the time."""
    leader = leading.leader(GROUP)
    assert leader is not None
    for now in (number * STEP_S for number in count()):
        leading.beaten(Beaten(now, ((GROUP, TERM),)), now)
        leading.tick(now)
        if leader.owner(UNIT) is None:
            return now
    raise AssertionError("never")


def test_grants_of_earlier_terms_are_left_alone_for_a_lease_where_nobody_led_before() -> None:
    assert freed_at(elected(predecessor=None)) == pytest.approx(TIMES.free_s, abs=STEP_S)


def test_where_somebody_led_before_they_are_left_alone_for_as_long_as_that_one_may_act() -> None:
    """A beat of the old leader may have come just before the election: it acts for a lease more,
    and whoever it answers last hands out for another."""
    patience_s = TIMES.free_s + TIMES.lease_s
    assert freed_at(elected(predecessor="old")) == pytest.approx(patience_s, abs=STEP_S)


def test_a_look_after_the_election_that_finds_the_old_leader_still_makes_that_shorter() -> None:
    leading = elected(predecessor="old")
    leading.outlived("old", 1.0)
    assert freed_at(leading) == pytest.approx(1.0 + TIMES.free_s, abs=STEP_S)


@pytest.mark.parametrize(("process", "looked_at"), [("old", -0.5), ("other", 1.0)])
def test_a_look_before_the_election_or_at_another_process_says_nothing_about_the_old_leader(
    process: str, looked_at: float
) -> None:
    leading = elected(predecessor="old")
    leading.outlived(process, looked_at)
    patience_s = TIMES.free_s + TIMES.lease_s
    assert freed_at(leading) == pytest.approx(patience_s, abs=STEP_S)


def test_it_acts_for_a_lease_from_when_a_beat_was_asked_for_however_late_that_is_answered() -> None:
    leading = elected(predecessor=None)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    assert leading.heard("b", wanted, 0.0) == []
    leading.beaten(Beaten(0.0, ((GROUP, TERM),)), 2.0)
    assert leading.heard("b", wanted, TIMES.hold_s - STEP_S)
    assert leading.heard("b", wanted, TIMES.hold_s) == []


def test_once_its_lease_is_over_it_answers_pings_without_saying_that_it_leads() -> None:
    leading = elected(predecessor=None)
    leading.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    leading.heard("b", wanted, 0.1)
    leading.roster("b", Roster(1, ((GROUP, "b.1"),), ()), 0.2)

    def led(now: float) -> tuple[tuple[str, int], ...]:
        [*_, sent] = leading.pinged("b", Ping(1, 1), now)
        assert isinstance(sent, Send)
        assert isinstance(sent.message, PingResponse)
        return sent.message.led

    assert led(TIMES.hold_s - STEP_S) == ((GROUP, TERM),)
    assert led(TIMES.hold_s) == ()


def test_whoever_was_silent_while_it_was_stopped_itself_is_not_taken_for_dead() -> None:
    leading = elected(predecessor=None)
    leader = leading.leader(GROUP)
    assert leader is not None
    leading.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    wanted = LeaderWanted(GROUP, "b.1", (), revoke_timeout_s=35.0, roster_version=1)
    leading.heard("b", wanted, 0.1)

    def lives_at(now: float) -> bool:
        leading.beaten(Beaten(now, ((GROUP, TERM),)), now)
        leading.tick(now)
        return "b.1" in leader.members

    woken_at = 10.0
    assert lives_at(woken_at)
    assert lives_at(woken_at + TIMES.hold_s - STEP_S)
    assert lives_at(woken_at + TIMES.free_s - STEP_S)
    assert not lives_at(woken_at + TIMES.free_s)


def wanted(borrower: str) -> LeaderWanted:
    return LeaderWanted(GROUP, borrower, (), revoke_timeout_s=35.0, roster_version=1)


def test_who_wants_to_be_taken_in_before_it_may_act_is_taken_in_once_with_its_first_beat() -> None:
    leading = elected(predecessor=None)
    leader = leading.leader(GROUP)
    assert leader is not None
    for borrower in ("b.1", "b.2"):
        assert leading.heard("b", wanted(borrower), 0.0) == []
    assert leading.heard("b", UpdateProgress(GROUP, "b.1", UNIT, epoch=5, mark=60), 0.0) == []
    assert leading.tick(0.0) == []
    leading.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.1)
    assert taken_in(leading.tick(0.1)) == {"b.1", "b.2"}
    assert taken_in(leading.tick(5.0)) == set()


def test_who_wants_to_be_taken_in_while_its_lease_is_over_is_taken_in_with_the_next_beat() -> None:
    leading = Leading("new", TIMES)
    leading.begin(Elected(GROUP, TERM, ()), None, 0.0)
    leading.beaten(Beaten(0.0, ((GROUP, TERM),)), 0.0)
    leading.handle(GROUP, UnitsRead(GROUP, Basis((), ())), 0.0)
    leading.tick(0.0)
    over = TIMES.hold_s
    assert leading.heard("b", wanted("b.1"), over) == []
    leading.beaten(Beaten(over, ((GROUP, TERM),)), over)
    assert taken_in(leading.tick(over)) == {"b.1"}


def taken_in(actions: list[Action]) -> set[str]:
    """The borrowers that are told so."""
    sent = [action.message for action in actions if isinstance(action, Send)]
    return {each.borrower for each in sent if isinstance(each, LeaderConnectResponse)}
