"""The agent of a session, as a table: for every state and event, the actions and the state after.

The state lists the agent's borrowers: the current one, then those that leave. A cell reads
``actions -> state after``; without an arrow the state stays. A state ignores the events that it
does not list. Actions of borrowers, which `test_borrower` covers, are named by their kind alone.
"""

from __future__ import annotations

import pytest

from tailrace.group.protocol.actions import Action, Departed, Send
from tailrace.group.protocol.borrower.agent import Agent, AgentEvent
from tailrace.group.protocol.borrower.borrower import Borrower, LeaderAt
from tailrace.group.protocol.events import (
    Died,
    Drained,
    Lost,
    Progressed,
    Subscribed,
    Tick,
    Unsubscribed,
)
from tailrace.group.protocol.messages import Grant, Invalidate, LeaderConnectResponse, Revoked
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import LeaderEntry

GROUP, SESSION, UNIT = "billing", "till", "orders/0.0"
TIMES = Times()
BEGUN, NOW = 100.0, 100.1

SUBSCRIBED, UNSUBSCRIBED = Subscribed(SESSION, GROUP, 5.0), Unsubscribed(SESSION)
LEADER, NEXT_LEADER = LeaderAt(LeaderEntry("leader", 3), 1), LeaderAt(LeaderEntry("next", 4), 2)


def _accepted(borrower: int) -> LeaderConnectResponse:
    return LeaderConnectResponse(GROUP, f"b{borrower}", 3, (), ())


EVENTS: dict[str, AgentEvent] = {
    "subscribed": SUBSCRIBED,
    "unsubscribed": UNSUBSCRIBED,
    "died": Died(SESSION),
    "a new leader": NEXT_LEADER,
    "b1 accepted": _accepted(1),
    "b1 granted": Grant(GROUP, "b1", 3, UNIT, 7),
    "b1 revoked": Revoked(GROUP, "b1", 3, UNIT, 7),
    "b1 invalidated": Invalidate(GROUP, "b1", 3),
    "b2 accepted": _accepted(2),
    "b2 invalidated": Invalidate(GROUP, "b2", 3),
    "unknown borrower invalidated": Invalidate(GROUP, "b9", 3),
    "progressed": Progressed(SESSION, UNIT, 7, 60),
    "drained": Drained(SESSION, UNIT, 7, 60),
    "lost": Lost(SESSION, UNIT, 7),
    "tick": Tick(),
    "leave timeout": Tick(),
}
TIME = {"tick": BEGUN + TIMES.resend_s, "leave timeout": BEGUN + TIMES.leave_s}

GRANTED = [LEADER, SUBSCRIBED, EVENTS["b1 accepted"], EVENTS["b1 granted"]]
BEFORE: dict[str, list[AgentEvent]] = {
    "none": [LEADER],
    "b1 connecting without leader": [SUBSCRIBED],
    "b1 connecting": [LEADER, SUBSCRIBED],
    "b1 connected": [LEADER, SUBSCRIBED, _accepted(1)],
    "b1 connected with unit": GRANTED,
    "leaving: b1 unsubscribing with unit": [*GRANTED, UNSUBSCRIBED],
    "b2 connecting, leaving: b1 unsubscribing with unit": [*GRANTED, UNSUBSCRIBED, SUBSCRIBED],
}
"""The events that lead to each state."""

TABLE: dict[str, dict[str, str]] = {
    "none": {
        "subscribed": "b1 sends LeaderWanted -> b1 connecting",
    },
    "b1 connecting without leader": {
        "unsubscribed": "departed -> none",
        "died": "-> none",
        "a new leader": "b1 sends LeaderWanted -> b1 connecting",
    },
    "b1 connecting": {
        "unsubscribed": "b1 sends Disconnect, departed -> none",
        "died": "b1 sends Disconnect -> none",
        "a new leader": "b1 sends LeaderWanted",
        "b1 accepted": "-> b1 connected",
        "tick": "b1 sends LeaderWanted",
        "leave timeout": "b1 sends LeaderWanted",
    },
    "b1 connected": {
        "unsubscribed": "b1 sends Disconnect, departed -> none",
        "died": "b1 sends Disconnect -> none",
        "a new leader": "b1 sends LeaderWanted",
        "b1 granted": "install, b1 sends UpdateProgress -> b1 connected with unit",
        "b1 revoked": "b1 sends RevokeFinished",
        "b1 invalidated": "b2 sends LeaderWanted -> b2 connecting",
    },
    "b1 connected with unit": {
        "unsubscribed": "drain -> leaving: b1 unsubscribing with unit",
        "died": "drop, b1 sends Disconnect -> none",
        "a new leader": "b1 sends LeaderWanted",
        "b1 granted": "b1 sends UpdateProgress",
        "b1 revoked": "drop, b1 sends RevokeFinished -> b1 connected",
        "b1 invalidated": "drop, b2 sends LeaderWanted -> b2 connecting",
        "progressed": "b1 sends UpdateProgress",
        "lost": "b1 sends UpdateProgress",
    },
    "leaving: b1 unsubscribing with unit": {
        "subscribed": "b2 sends LeaderWanted -> b2 connecting, leaving: b1 unsubscribing with unit",
        "died": "drop, b1 sends Disconnect, departed -> none",
        "a new leader": "b1 sends LeaderWanted",
        "b1 revoked": "drop, b1 sends RevokeFinished, b1 sends Disconnect, departed -> none",
        "b1 invalidated": "drop, departed -> none",
        "progressed": "b1 sends UpdateProgress",
        "drained": "drop, b1 sends Disconnect, departed -> none",
        "lost": "drop, b1 sends Disconnect, departed -> none",
        "leave timeout": "drop, b1 sends Disconnect, departed -> none",
    },
    "b2 connecting, leaving: b1 unsubscribing with unit": {
        "unsubscribed": "b2 sends Disconnect -> leaving: b1 unsubscribing with unit",
        "died": "b2 sends Disconnect, drop, b1 sends Disconnect, departed -> none",
        "a new leader": "b2 sends LeaderWanted, b1 sends LeaderWanted",
        "b1 revoked": "drop, b1 sends RevokeFinished, b1 sends Disconnect -> b2 connecting",
        "b1 invalidated": "drop -> b2 connecting",
        "b2 accepted": "-> b2 connected, leaving: b1 unsubscribing with unit",
        "progressed": "b1 sends UpdateProgress",
        "drained": "drop, b1 sends Disconnect -> b2 connecting",
        "lost": "drop, b1 sends Disconnect -> b2 connecting",
        "tick": "b2 sends LeaderWanted",
        "leave timeout": "b2 sends LeaderWanted, drop, b1 sends Disconnect -> b2 connecting",
    },
}


def _after(events: list[AgentEvent]) -> Agent:
    made: list[Borrower] = []

    def make(subscribed: Subscribed) -> Borrower:
        made.append(
            Borrower(
                name=f"b{len(made) + 1}",
                session=subscribed.session,
                group=subscribed.group,
                revoke_timeout_s=subscribed.revoke_timeout_s,
                roster_version=1,
                times=TIMES,
            )
        )
        return made[-1]

    agent = Agent(SESSION, GROUP, make)
    for event in events:
        agent.handle(event, BEGUN)
    return agent


def _state(agent: Agent) -> str:
    def word(borrower: Borrower) -> str:
        assert borrower.state is not None
        has = " without leader" if borrower.leader is None else " with unit" * len(borrower._units)
        return f"{borrower.name} {borrower.state.value}{has}"

    words = [
        ("" if borrower is agent.current else "leaving: ") + word(borrower) for borrower in agent
    ]
    return ", ".join(words) or "none"


def _word(action: Action) -> str:
    """An action in a word of the table."""
    match action:
        case Send(_, message):
            name = getattr(message, "borrower", "")
            return f"{name} sends {type(message).__name__}"
        case Departed(session):
            assert session == SESSION
            return "departed"
        case _:
            return type(action).__name__.lower()


def _cell(state: str, event: str) -> str:
    """What happens, in the words of the table."""
    agent = _after(BEFORE[state])
    assert _state(agent) == state
    actions = agent.handle(EVENTS[event], TIME.get(event, NOW))
    agent.validate()
    words = ", ".join(map(_word, actions))
    after = _state(agent)
    return words if after == state else f"{words} -> {after}".strip()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", BEFORE)
def test_each_event_in_each_state_does_what_the_table_says(state: str, event: str) -> None:
    assert _cell(state, event) == TABLE[state].get(event, "")


def test_the_table_has_no_other_states_and_events() -> None:
    assert TABLE.keys() == BEFORE.keys()
    assert {event for row in TABLE.values() for event in row} <= EVENTS.keys()
