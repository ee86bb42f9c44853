"""The borrower, as a table: for every state and every event, the actions and the state after.

A cell reads ``actions -> state after``; without an arrow the state stays. A state ignores the
events that it does not list. The leader has term 3, and the borrower has at most one unit, at epoch
7; another epoch is given as ``@8``. Messages go to the leader.
"""

from __future__ import annotations

import pytest

from tailrace.group.protocol.actions import Action, Drain, Drop, Install, Send
from tailrace.group.protocol.borrower.borrower import Borrower, BorrowerEvent, LeaderAt
from tailrace.group.protocol.events import Died, Drained, Lost, Progressed, Tick, Unsubscribed
from tailrace.group.protocol.messages import (
    Disconnect,
    Grant,
    HeldUnit,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Revoke,
    Revoked,
    RevokeFinished,
    UpdateProgress,
)
from tailrace.group.protocol.states import BORROWED_UNIT, BORROWER
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import LeaderEntry

GROUP, NAME, SESSION, UNIT = "billing", "till~p.1", "till", "orders/0.0"
TIMES = Times()
REVOKE_TIMEOUT_S = 5.0
LEADER, NEXT_LEADER = LeaderEntry("leader", 3), LeaderEntry("next leader", 4)
BEGUN, NOW = 100.0, 100.1
HELD = (HeldUnit(UNIT, 7),)

EVENTS: dict[str, BorrowerEvent] = {
    "a new leader": LeaderAt(NEXT_LEADER, 2),
    "the same leader": LeaderAt(LEADER, 2),
    "connect response": LeaderConnectResponse(GROUP, NAME, 3, HELD, HELD),
    "connect response, unit not kept": LeaderConnectResponse(GROUP, NAME, 3, HELD, ()),
    "connect response, old term": LeaderConnectResponse(GROUP, NAME, 2, HELD, ()),
    "grant": Grant(GROUP, NAME, 3, UNIT, 7),
    "grant, next epoch": Grant(GROUP, NAME, 3, UNIT, 8),
    "grant, old epoch": Grant(GROUP, NAME, 3, UNIT, 6),
    "grant, old term": Grant(GROUP, NAME, 2, UNIT, 8),
    "revoke": Revoke(GROUP, NAME, 3, UNIT, 7),
    "revoke, next epoch": Revoke(GROUP, NAME, 3, UNIT, 8),
    "revoke, old term": Revoke(GROUP, NAME, 2, UNIT, 7),
    "revoked": Revoked(GROUP, NAME, 3, UNIT, 7),
    "revoked, next epoch": Revoked(GROUP, NAME, 3, UNIT, 8),
    "revoked, old epoch": Revoked(GROUP, NAME, 3, UNIT, 6),
    "revoked, old term": Revoked(GROUP, NAME, 2, UNIT, 7),
    "invalidate": Invalidate(GROUP, NAME, 3),
    "invalidate, old term": Invalidate(GROUP, NAME, 2),
    "invalidate, answers wanted": Invalidate(GROUP, NAME, 3, wanted=True),
    "invalidate, answers wanted, old term": Invalidate(GROUP, NAME, 2, wanted=True),
    "progressed": Progressed(SESSION, UNIT, 7, 60),
    "progressed to the end": Progressed(SESSION, UNIT, 7, 60, finished=True),
    "progressed, old epoch": Progressed(SESSION, UNIT, 6, 60),
    "drained": Drained(SESSION, UNIT, 7, 60),
    "drained, old epoch": Drained(SESSION, UNIT, 6, 60),
    "lost": Lost(SESSION, UNIT, 7),
    "lost, old epoch": Lost(SESSION, UNIT, 6),
    "unsubscribed": Unsubscribed(SESSION),
    "died": Died(SESSION),
    "early tick": Tick(),
    "tick": Tick(),
    "leave timeout": Tick(),
}

TABLE: dict[str, dict[str, str]] = {
    "connecting": {
        "a new leader": "wanted to next leader",
        "connect response": "-> connected",
        "connect response, unit not kept": "-> connected",
        "invalidate, answers wanted": "-> ended",
        "unsubscribed": "disconnect -> ended",
        "died": "disconnect -> ended",
        "tick": "wanted",
        "leave timeout": "wanted",
    },
    "connected": {
        "a new leader": "wanted to next leader",
        "grant": "install, progress 0 -> connected, granted",
        "grant, next epoch": "install@8, progress@8 0 -> connected, granted@8",
        "grant, old epoch": "install@6, progress@6 0 -> connected, granted@6",
        "revoke": "forgotten",
        "revoke, next epoch": "forgotten@8",
        "revoked": "forgotten",
        "revoked, next epoch": "forgotten@8",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "-> ended",
        "invalidate, answers wanted": "-> ended",
        "unsubscribed": "disconnect -> ended",
        "died": "disconnect -> ended",
    },
    "connected, granted": {
        "a new leader": "wanted with unit to next leader",
        "connect response, unit not kept": "drop -> connected",
        "grant": "progress 0",
        "grant, next epoch": "drop, install@8, progress@8 0 -> connected, granted@8",
        "grant, old epoch": "forgotten@6",
        "revoke": "drain -> connected, revoking",
        "revoke, next epoch": "drop, forgotten@8 -> connected",
        "revoked": "drop, forgotten -> connected",
        "revoked, next epoch": "drop, forgotten@8 -> connected",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "drop -> ended",
        "invalidate, answers wanted": "drop -> ended",
        "progressed": "progress 60",
        "progressed to the end": "progress 60 finished -> connected, finished",
        "lost": "progress 0 final -> connected, drained",
        "unsubscribed": "drain -> unsubscribing, revoking",
        "died": "drop, disconnect -> ended",
    },
    "connected, finished": {
        "a new leader": "wanted with unit to next leader",
        "connect response, unit not kept": "drop -> connected",
        "grant": "progress 50 finished",
        "grant, next epoch": "drop, install@8, progress@8 0 -> connected, granted@8",
        "grant, old epoch": "forgotten@6",
        "revoke": "drain -> connected, revoking",
        "revoke, next epoch": "drop, forgotten@8 -> connected",
        "revoked": "drop, forgotten -> connected",
        "revoked, next epoch": "drop, forgotten@8 -> connected",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "drop -> ended",
        "invalidate, answers wanted": "drop -> ended",
        "progressed": "progress 60 finished",
        "progressed to the end": "progress 60 finished",
        "lost": "progress 50 final finished -> connected, drained",
        "unsubscribed": "drain -> unsubscribing, revoking",
        "died": "drop, disconnect -> ended",
        "tick": "progress 50 finished",
        "leave timeout": "progress 50 finished",
    },
    "connected, revoking": {
        "a new leader": "wanted with unit revoking to next leader",
        "connect response, unit not kept": "drop -> connected",
        "grant": "progress 0",
        "grant, next epoch": "drop, install@8, progress@8 0 -> connected, granted@8",
        "grant, old epoch": "forgotten@6",
        "revoke, next epoch": "drop, forgotten@8 -> connected",
        "revoked": "drop, forgotten -> connected",
        "revoked, next epoch": "drop, forgotten@8 -> connected",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "drop -> ended",
        "invalidate, answers wanted": "drop -> ended",
        "progressed": "progress 60",
        "progressed to the end": "progress 60 finished",
        "drained": "progress 60 final -> connected, drained",
        "lost": "progress 0 final -> connected, drained",
        "unsubscribed": "-> unsubscribing, revoking",
        "died": "drop, disconnect -> ended",
    },
    "connected, drained": {
        "a new leader": "wanted with unit revoking to next leader",
        "connect response, unit not kept": "drop -> connected",
        "grant": "progress 50 final",
        "grant, next epoch": "drop, install@8, progress@8 0 -> connected, granted@8",
        "grant, old epoch": "forgotten@6",
        "revoke": "progress 50 final",
        "revoke, next epoch": "drop, forgotten@8 -> connected",
        "revoked": "drop, forgotten -> connected",
        "revoked, next epoch": "drop, forgotten@8 -> connected",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "drop -> ended",
        "invalidate, answers wanted": "drop -> ended",
        "progressed": "progress 60 final",
        "progressed to the end": "progress 60 final finished",
        "drained": "progress 60 final",
        "lost": "progress 50 final",
        "unsubscribed": "drop, disconnect -> ended",
        "died": "drop, disconnect -> ended",
        "tick": "progress 50 final",
        "leave timeout": "progress 50 final",
    },
    "unsubscribing, revoking": {
        "a new leader": "wanted with unit revoking to next leader",
        "connect response, unit not kept": "drop -> unsubscribing",
        "revoked": "drop, forgotten, disconnect -> ended",
        "revoked, next epoch": "drop, forgotten@8, disconnect -> ended",
        "revoked, old epoch": "forgotten@6",
        "invalidate": "drop -> ended",
        "invalidate, answers wanted": "drop -> ended",
        "progressed": "progress 60",
        "progressed to the end": "progress 60 finished",
        "drained": "drop, disconnect -> ended",
        "lost": "drop, disconnect -> ended",
        "died": "drop, disconnect -> ended",
        "leave timeout": "drop, disconnect -> ended",
    },
    "unsubscribing": {
        "a new leader": "wanted to next leader",
        "revoked": "forgotten, disconnect -> ended",
        "revoked, next epoch": "forgotten@8, disconnect -> ended",
        "revoked, old epoch": "forgotten@6, disconnect -> ended",
        "invalidate": "-> ended",
        "invalidate, answers wanted": "-> ended",
        "died": "disconnect -> ended",
        "leave timeout": "disconnect -> ended",
    },
    "ended": {},
}


def _after(*events: BorrowerEvent) -> Borrower:
    """A borrower that has handled events, the first of which was its leader."""
    borrower = Borrower(
        name=NAME,
        session=SESSION,
        group=GROUP,
        revoke_timeout_s=REVOKE_TIMEOUT_S,
        roster_version=1,
        times=TIMES,
    )
    for event in (LeaderAt(LEADER, 1), *events):
        borrower.handle(event, BEGUN)
    return borrower


CONNECT = LeaderConnectResponse(GROUP, NAME, 3, (), ())
GRANT, REVOKE = EVENTS["grant"], EVENTS["revoke"]
BEFORE: dict[str, list[BorrowerEvent]] = {
    "connecting": [],
    "connected": [CONNECT],
    "connected, granted": [CONNECT, GRANT],
    "connected, finished": [CONNECT, GRANT, Progressed(SESSION, UNIT, 7, 50, finished=True)],
    "connected, revoking": [CONNECT, GRANT, REVOKE],
    "connected, drained": [CONNECT, GRANT, REVOKE, Drained(SESSION, UNIT, 7, 50)],
    "unsubscribing, revoking": [CONNECT, GRANT, Unsubscribed(SESSION)],
    "unsubscribing": [
        CONNECT,
        GRANT,
        Unsubscribed(SESSION),
        EVENTS["connect response, unit not kept"],
    ],
    "ended": [CONNECT, GRANT, Died(SESSION)],
}
"""The events that lead to each state."""

RESEND_AT, LEAVE_AT = BEGUN + TIMES.resend_s, BEGUN + TIMES.leave_s
TIME = {"tick": RESEND_AT, "leave timeout": LEAVE_AT}
DEADLINES = {
    "connecting": RESEND_AT,
    "connected, finished": RESEND_AT,
    "connected, drained": RESEND_AT,
    "unsubscribing, revoking": LEAVE_AT,
    "unsubscribing": LEAVE_AT,
}
"""The deadlines of the states that have one."""


def _state(borrower: Borrower) -> str:
    if borrower.state is None:
        return "ended"
    words = [borrower.state.value]
    for _, unit in borrower._units.items():
        word = "finished" if unit.finished and unit.state.value == "granted" else unit.state.value
        words.append(("drained" if unit.final else word) + _epoch(unit.epoch))
    return ", ".join(words)


def _epoch(epoch: int) -> str:
    return "" if epoch == 7 else f"@{epoch}"


def _word(action: Action) -> str:
    """An action in a word of the table."""
    match action:
        case (
            Install(session, unit, epoch) | Drain(session, unit, epoch) | Drop(session, unit, epoch)
        ):
            assert (session, unit) == (SESSION, UNIT)
            return type(action).__name__.lower() + _epoch(epoch)
        case Send(process, message):
            assert isinstance(message, LeaderWanted | UpdateProgress | RevokeFinished | Disconnect)
            assert (message.group, message.borrower) == (GROUP, NAME)
            if isinstance(message, LeaderWanted):
                assert message.roster_version == (1 if process == LEADER.process else 2)
                assert message.revoke_timeout_s == REVOKE_TIMEOUT_S
            return _message(message) + ("" if process == LEADER.process else f" to {process}")
    raise AssertionError(action)


def _message(message: LeaderWanted | UpdateProgress | RevokeFinished | Disconnect) -> str:
    match message:
        case LeaderWanted(held=()):
            return "wanted"
        case LeaderWanted(held=(held,)):
            assert (held.unit, held.epoch) == (UNIT, 7)
            return "wanted with unit" + (" revoking" if held.revoking else "")
        case UpdateProgress():
            flags = (" final" if message.final else "") + (" finished" if message.finished else "")
            return f"progress{_epoch(message.epoch)} {message.mark}{flags}"
        case RevokeFinished():
            return "forgotten" + _epoch(message.epoch)
        case Disconnect():
            return "disconnect"
    raise AssertionError(message)


def _cell(state: str, event: str) -> str:
    """What happens, in the words of the table."""
    borrower = _after(*BEFORE[state])
    assert _state(borrower) == state
    actions = borrower.handle(EVENTS[event], TIME.get(event, NOW))
    borrower.validate()
    words = ", ".join(map(_word, actions))
    after = _state(borrower)
    return words if after == state else f"{words} -> {after}".strip()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", BEFORE)
def test_each_event_in_each_state_does_what_the_table_says(state: str, event: str) -> None:
    assert _cell(state, event) == TABLE[state].get(event, "")


@pytest.mark.parametrize("state", BEFORE)
def test_each_state_that_waits_for_an_answer_or_a_timeout_has_its_deadline(state: str) -> None:
    borrower = _after(*BEFORE[state])
    assert borrower.deadline() == DEADLINES.get(state)
    assert borrower.connected == (state != "connecting")


def test_the_end_of_a_unit_that_is_reported_twice_is_not_repeated_later() -> None:
    borrower = _after(*BEFORE["connected, finished"])
    borrower.handle(EVENTS["progressed to the end"], NOW)
    assert borrower.deadline() == RESEND_AT


@pytest.mark.parametrize("wanted", [True, False])
def test_only_the_answer_to_its_request_lets_a_new_leader_end_a_borrower(wanted: bool) -> None:
    """Other messages of the borrower may reach the new leader before its request to connect."""
    borrower = _after(*BEFORE["connected, granted"], EVENTS["a new leader"])
    borrower.handle(Invalidate(GROUP, NAME, 4, wanted=wanted), NOW)
    assert _state(borrower) == ("ended" if wanted else "connected, granted")


def test_the_table_has_no_other_states_and_events() -> None:
    assert TABLE.keys() <= BEFORE.keys()
    assert {event for row in TABLE.values() for event in row} <= EVENTS.keys()


def test_the_table_takes_every_transition_of_borrowers_and_their_units(
    transitions_taken: set[object],
) -> None:
    for state in BEFORE:
        for event in EVENTS:
            _cell(state, event)
    assert transitions_taken >= {*BORROWER, *BORROWED_UNIT}
