"""The names of borrowers, and the borrower that a message reaches."""

from __future__ import annotations

from tailrace.group.protocol.actions import Send
from tailrace.group.protocol.borrower.agents import Agents
from tailrace.group.protocol.events import Subscribed, Unsubscribed
from tailrace.group.protocol.messages import Disconnect, Invalidate, LeaderWanted
from tailrace.group.protocol.names import consumer_of
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import LeaderEntry

LEADER = LeaderEntry("leader", 3)


def subscribed(process: str, session: str = "till.1") -> Agents:
    """Return a process with a session whose borrower has asked a leader to join."""
    agents = Agents(process, Times())
    (asked,) = agents.subscribe(Subscribed(session, "billing", 5.0), LEADER, 0.0)
    assert isinstance(asked, Send)
    assert isinstance(asked.message, LeaderWanted)
    return agents


def test_a_borrower_is_known_by_the_name_of_its_consumer() -> None:
    (borrower,) = subscribed("p1")
    assert borrower.name != "till.1"
    assert consumer_of(borrower.name) == "till.1"


def test_sessions_of_one_name_in_two_processes_have_borrowers_that_can_be_told_apart() -> None:
    """As in a parent and its forked child, which share the state from before the fork."""
    (one,), (other,) = subscribed("p1"), subscribed("p2")
    assert one.name != other.name


def test_a_session_that_subscribes_again_has_a_borrower_of_another_name() -> None:
    agents = subscribed("p1")
    (first,) = agents
    agents.handle("till.1", Unsubscribed("till.1"), 1.0)
    assert list(agents) == []
    assert agents.departures == 1
    agents.subscribe(Subscribed("till.1", "billing", 5.0), LEADER, 2.0)
    (second,) = agents
    assert second.name != first.name


def test_a_message_for_a_borrower_that_ended_is_answered_with_that() -> None:
    agents = subscribed("p1")
    for name in ("till.1~p0.1", "nobody~p1.1", "nobody"):
        assert agents.received("leader", Invalidate("billing", name, 3), 1.0) == [
            Send("leader", Disconnect("billing", name))
        ]
    assert len(list(agents)) == 1
