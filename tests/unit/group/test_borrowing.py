"""What borrowers are called, and whom a message for one of them reaches."""

from __future__ import annotations

from tailrace.group.actions import Send
from tailrace.group.borrowing import Borrowing
from tailrace.group.events import Subscribed, Unsubscribed
from tailrace.group.messages import Disconnect, Invalidate, LeaderWanted
from tailrace.group.naming import consumer_of
from tailrace.group.times import Times
from tailrace.group.unit import LeaderEntry

LEADER = LeaderEntry("leader", 3)


def subscribed(process: str, session: str = "till.1") -> Borrowing:
    """A process with a session, whose borrower has asked a leader to be taken in."""
    borrowing = Borrowing(process, Times())
    (asked,) = borrowing.subscribe(Subscribed(session, "billing", 5.0), LEADER, 0.0)
    assert isinstance(asked, Send)
    assert isinstance(asked.message, LeaderWanted)
    return borrowing


def test_a_borrower_is_known_by_the_name_of_its_consumer() -> None:
    (borrower,) = subscribed("p1")
    assert borrower.name != "till.1"
    assert consumer_of(borrower.name) == "till.1"


def test_sessions_of_one_name_in_two_processes_have_borrowers_that_can_be_told_apart() -> None:
    """As in a parent and its forked child, that begin with what was made before the fork."""
    (one,), (other,) = subscribed("p1"), subscribed("p2")
    assert one.name != other.name


def test_a_session_that_subscribes_again_has_a_borrower_of_another_name() -> None:
    borrowing = subscribed("p1")
    (first,) = borrowing
    borrowing.tell("till.1", Unsubscribed("till.1"), 1.0)
    assert list(borrowing) == []
    assert borrowing.departures == 1
    borrowing.subscribe(Subscribed("till.1", "billing", 5.0), LEADER, 2.0)
    (second,) = borrowing
    assert second.name != first.name


def test_a_message_for_a_borrower_that_is_no_more_is_answered_so() -> None:
    borrowing = subscribed("p1")
    for name in ("till.1~p0.1", "nobody~p1.1", "nobody"):
        assert borrowing.heard("leader", Invalidate("billing", name, 3), 1.0) == [
            Send("leader", Disconnect("billing", name))
        ]
    assert len(list(borrowing)) == 1
