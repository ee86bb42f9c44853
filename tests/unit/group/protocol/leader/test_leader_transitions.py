"""The leader, as a table: for every state of a unit and every event, the actions and the state.

A cell reads ``actions then actions of the next tick -> state after``; without an arrow the state
stays. A state ignores the events that it does not list. Lines of the history are in brackets, and
``Connect+unit`` lets the borrower keep the unit. There is one borrower, and one unit at epoch 7.
"""

from __future__ import annotations

import pytest

from tailrace.group.protocol.actions import (
    Action,
    CommitGrants,
    ReadGrants,
    ReadUnits,
    Send,
    WriteHistory,
)
from tailrace.group.protocol.events import (
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    Tick,
    UnitsRead,
)
from tailrace.group.protocol.leader.events import (
    FromBorrower,
    LeaderEvent,
    ProcessLost,
    RosterRead,
)
from tailrace.group.protocol.leader.leader import Leader
from tailrace.group.protocol.messages import (
    Disconnect,
    HeldUnit,
    LeaderConnectResponse,
    LeaderWanted,
    RevokeFinished,
    ToLeader,
    UpdateProgress,
)
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import Basis, StoredGrant, Unit, UnitState

GROUP, TERM, UNIT, NAME, PROCESS = "billing", 3, "orders/0.0", "till~p.1", "p"
TIMES = Times()
BEGUN, REVOKE_TIMEOUT_S = 100.0, 5.0
ADOPT_UNTIL = BEGUN + TIMES.free_s
GRANT = StoredGrant(UNIT, NAME, PROCESS, 7)


def _from(message: ToLeader) -> FromBorrower:
    return FromBorrower(PROCESS, message)


def _wanted(*held: HeldUnit) -> FromBorrower:
    return _from(LeaderWanted(GROUP, NAME, held, REVOKE_TIMEOUT_S, 1))


def _units(*units: Unit, version: int = 1) -> UnitsRead:
    return UnitsRead(GROUP, Basis(units, (("topic/orders", version),)))


def _roster(version: int, *connected: str) -> RosterRead:
    return RosterRead(PROCESS, version, frozenset(connected), frozenset())


EVENTS: dict[str, LeaderEvent] = {
    "wanted": _wanted(),
    "wanted with unit": _wanted(HeldUnit(UNIT, 7)),
    "wanted, unit revoking": _wanted(HeldUnit(UNIT, 7, revoking=True)),
    "wanted, unit at old epoch": _wanted(HeldUnit(UNIT, 6)),
    "progress": _from(UpdateProgress(GROUP, NAME, UNIT, 7, 60)),
    "progress to the end": _from(UpdateProgress(GROUP, NAME, UNIT, 7, 60, finished=True)),
    "final progress": _from(UpdateProgress(GROUP, NAME, UNIT, 7, 60, final=True)),
    "progress, old epoch": _from(UpdateProgress(GROUP, NAME, UNIT, 6, 60)),
    "revoke finished": _from(RevokeFinished(GROUP, NAME, UNIT, 7)),
    "revoke finished, old epoch": _from(RevokeFinished(GROUP, NAME, UNIT, 6)),
    "disconnect": _from(Disconnect(GROUP, NAME)),
    "process lost": ProcessLost(PROCESS, "died"),
    "roster with borrower": _roster(1, NAME),
    "roster without borrower": _roster(1),
    "old roster without borrower": _roster(0),
    "units read, open": _units(Unit(UNIT, UnitState.OPEN)),
    "units read, finished": _units(Unit(UNIT, UnitState.FINISHED)),
    "units read, deleted": _units(),
    "units read, new version": _units(Unit(UNIT, UnitState.OPEN), version=2),
    "grants committed": GrantsCommitted(GROUP, 1, 7),
    "grants refused": GrantsRefused(GROUP, 1, deposed=False),
    "grants refused, deposed": GrantsRefused(GROUP, 1, deposed=True),
    "grants unknown": GrantsUnknown(GROUP, 1),
    "grants read": GrantsRead(GROUP, (GRANT,), deposed=False),
    "grants read, fenced": GrantsRead(GROUP, (GRANT._replace(fenced=True),), deposed=False),
    "grants read, deposed": GrantsRead(GROUP, (GRANT,), deposed=True),
    "tick": Tick(),
    "revoke timeout": Tick(),
    "answer timeout": Tick(),
}
TIME = {
    "revoke timeout": BEGUN + REVOKE_TIMEOUT_S,
    "answer timeout": BEGUN + REVOKE_TIMEOUT_S + TIMES.free_s,
}
OPEN, FINISHED, TICK = EVENTS["units read, open"], EVENTS["units read, finished"], Tick()
GRANTING = [_wanted(), OPEN, TICK, EVENTS["grants committed"], TICK]
GRANTED = [*GRANTING, EVENTS["progress"], TICK]
REVOKING = [*GRANTED, FINISHED, TICK]
BEFORE: dict[str, list[LeaderEvent]] = {
    "no borrower": [OPEN, TICK],
    "adopted": [OPEN, TICK],
    "committing": [_wanted(), OPEN, TICK],
    "granting": GRANTING,
    "granted": GRANTED,
    "granted, uncertain": [*GRANTED, EVENTS["units read, new version"], TICK],
    "revoking": REVOKING,
    "revoked": [*REVOKING, EVENTS["final progress"], TICK],
    "uncertain": [_wanted(), OPEN, TICK, EVENTS["grants unknown"]],
    "deposed": [_wanted(), OPEN, TICK, EVENTS["grants refused, deposed"]],
}
"""The events that lead to each state. Only an adopted unit was granted in an earlier term."""

TABLE: dict[str, dict[str, str]] = {
    "no borrower": {
        "wanted": "[joined], Connect then commit grant -> committing",
        "wanted with unit": "[joined], Connect then commit grant -> committing",
        "wanted, unit revoking": "[joined], Connect then commit grant -> committing",
        "wanted, unit at old epoch": "[joined], Connect then commit grant -> committing",
        "progress": "Invalidate",
        "progress to the end": "Invalidate",
        "final progress": "Invalidate",
        "progress, old epoch": "Invalidate",
        "revoke finished": "Invalidate",
        "revoke finished, old epoch": "Invalidate",
        "roster with borrower": "Invalidate",
        "units read, new version": "then read grants",
    },
    "adopted": {
        "wanted": "[joined], Connect then Grant -> granting",
        "wanted with unit": "[joined], Connect+unit -> granted",
        "wanted, unit revoking": "[joined], [revoking], Connect+unit then Revoke -> revoking",
        "wanted, unit at old epoch": "[joined], Connect then Grant -> granting",
        "progress to the end": "then read units",
        "final progress": "then Revoked",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] then commit removal -> committing",
        "disconnect": "[freed], [left] then commit removal -> committing",
        "process lost": "[freed], [left] then commit removal -> committing",
        "roster without borrower": "[freed], [left] then commit removal -> committing",
        "old roster without borrower": "[freed], [left] then commit removal -> committing",
        "units read, new version": "then read grants -> adopted, uncertain",
        "revoke timeout": "[freed], [left], commit removal -> committing",
        "answer timeout": "[freed], [left], commit removal -> committing",
    },
    "committing": {
        "wanted": "Connect",
        "wanted with unit": "Connect",
        "wanted, unit revoking": "Connect",
        "wanted, unit at old epoch": "Connect",
        "progress": "Revoked",
        "progress to the end": "Revoked",
        "final progress": "Revoked",
        "progress, old epoch": "Revoked@6",
        "disconnect": "[left]",
        "process lost": "[left]",
        "roster without borrower": "[left]",
        "grants committed": "[granted] then Grant -> granting",
        "grants refused": "then read grants -> uncertain",
        "grants refused, deposed": "-> deposed",
        "grants unknown": "-> uncertain",
    },
    "granting": {
        "wanted": "Connect",
        "wanted with unit": "Connect+unit -> granted",
        "wanted, unit revoking": "[revoking], Connect+unit then Revoke -> revoking",
        "wanted, unit at old epoch": "Connect",
        "progress": "-> granted",
        "progress to the end": "then read units -> granted",
        "final progress": "then Revoked -> revoked",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] then commit grant -> committing",
        "disconnect": "[freed], [left] then commit removal -> committing",
        "process lost": "[freed], [left] then commit removal -> committing",
        "roster without borrower": "[freed], [left] then commit removal -> committing",
        "units read, finished": "then [revoking], Revoke -> revoking",
        "units read, deleted": "then [revoking], Revoke -> revoking",
        "units read, new version": "then read grants -> granting, uncertain",
        "revoke timeout": "Grant",
        "answer timeout": "Grant",
    },
    "granted": {
        "wanted": "Connect then Grant -> granting",
        "wanted with unit": "Connect+unit",
        "wanted, unit revoking": "[revoking], Connect+unit then Revoke -> revoking",
        "wanted, unit at old epoch": "Connect then Grant -> granting",
        "progress to the end": "then read units",
        "final progress": "then Revoked -> revoked",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] then commit grant -> committing",
        "disconnect": "[freed], [left] then commit removal -> committing",
        "process lost": "[freed], [left] then commit removal -> committing",
        "roster without borrower": "[freed], [left] then commit removal -> committing",
        "units read, finished": "then [revoking], Revoke -> revoking",
        "units read, deleted": "then [revoking], Revoke -> revoking",
        "units read, new version": "then read grants -> granted, uncertain",
    },
    "granted, uncertain": {
        "wanted": "Connect then Grant -> granting, uncertain",
        "wanted with unit": "Connect+unit",
        "wanted, unit revoking": "[revoking], Connect+unit then Revoke -> revoking, uncertain",
        "wanted, unit at old epoch": "Connect then Grant -> granting, uncertain",
        "progress to the end": "then read grants",
        "final progress": "then Revoked -> revoked, uncertain",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] -> uncertain",
        "disconnect": "[freed], [left] -> no borrower",
        "process lost": "[freed], [left] -> no borrower",
        "roster without borrower": "[freed], [left] -> no borrower",
        "units read, open": "then read grants",
        "units read, finished": "then read grants",
        "units read, deleted": "then read grants",
        "grants read": "-> granted",
        "grants read, fenced": "then Revoked -> revoked",
        "grants read, deposed": "-> deposed",
        "revoke timeout": "read grants",
        "answer timeout": "read grants",
    },
    "revoking": {
        "wanted": "Connect",
        "wanted with unit": "Connect+unit",
        "wanted, unit revoking": "Connect+unit",
        "wanted, unit at old epoch": "Connect",
        "final progress": "then Revoked -> revoked",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] then commit removal -> committing",
        "disconnect": "[freed], [left] then commit removal -> committing",
        "process lost": "[freed], [left] then commit removal -> committing",
        "roster without borrower": "[freed], [left] then commit removal -> committing",
        "units read, new version": "then read grants -> revoking, uncertain",
        "revoke timeout": "Revoked -> revoked",
        "answer timeout": "Revoked -> revoked",
    },
    "revoked": {
        "wanted": "Connect",
        "wanted with unit": "Connect+unit",
        "wanted, unit revoking": "Connect+unit",
        "wanted, unit at old epoch": "Connect",
        "progress, old epoch": "Revoked@6",
        "revoke finished": "[freed] then commit removal -> committing",
        "disconnect": "[freed], [left] then commit removal -> committing",
        "process lost": "[freed], [left] then commit removal -> committing",
        "roster without borrower": "[freed], [left] then commit removal -> committing",
        "units read, new version": "then read grants -> revoked, uncertain",
        "revoke timeout": "[freed], commit removal -> committing",
        "answer timeout": "[freed], commit removal -> committing",
    },
    "uncertain": {
        "wanted": "Connect",
        "wanted with unit": "Connect",
        "wanted, unit revoking": "Connect",
        "wanted, unit at old epoch": "Connect",
        "progress": "Revoked",
        "progress to the end": "Revoked",
        "final progress": "Revoked",
        "progress, old epoch": "Revoked@6",
        "disconnect": "[left] -> no borrower",
        "process lost": "[left] -> no borrower",
        "roster without borrower": "[left] -> no borrower",
        "units read, new version": "then read grants",
        "grants read": "then commit grant -> committing",
        "grants read, fenced": "then commit grant -> committing",
        "grants read, deposed": "-> deposed",
        "revoke timeout": "read grants",
        "answer timeout": "read grants",
    },
    "deposed": {},
}


def _before(state: str) -> Leader:
    grants = (GRANT,) if state == "adopted" else ()
    leader = Leader(GROUP, TERM, TIMES, grants, ADOPT_UNTIL, BEGUN)
    for event in BEFORE[state]:
        leader.handle(event, BEGUN)
        leader.validate()
    return leader


def _state(leader: Leader) -> str:
    if leader.deposed:
        return "deposed"
    assignment = leader._assignments.of(NAME, UNIT, 7)
    if assignment is not None:
        state = "adopted" if leader.members.not_connected() else assignment.state.value
        return f"{state}, uncertain" if leader._stored._grants_stale else state
    if leader._stored.pending is not None:
        return "committing"
    if not list(leader.members):
        return "no borrower"
    return "free" if leader._stored.certain else "uncertain"


def _word(action: Action) -> str:
    """An action in a word of the table."""
    match action:
        case Send(process, message):
            assert process == PROCESS
            word = type(message).__name__
            if isinstance(message, LeaderConnectResponse):
                word = "Connect+unit" if message.kept else "Connect"
            return word + ("@6" if getattr(message, "epoch", 7) == 6 else "")
        case WriteHistory(what=what):
            return f"[{what}]"
        case CommitGrants(granted=granted, freed=freed):
            return " ".join(["commit", *["grant"] * len(granted), *["removal"] * len(freed)])
        case ReadUnits():
            return "read units"
        case ReadGrants():
            return "read grants"
    raise AssertionError(action)


def _cell(state: str, event: str) -> str:
    """What happens, in the words of the table."""
    leader = _before(state)
    assert _state(leader) == state
    now = TIME.get(event, BEGUN)
    words = ", ".join(map(_word, leader.handle(EVENTS[event], now)))
    leader.validate()
    if not isinstance(EVENTS[event], Tick):
        ticked = ", ".join(map(_word, leader.handle(Tick(), now)))
        words = f"{words} then {ticked}".strip() if ticked else words
        leader.validate()
    after = _state(leader)
    return words if after == state else f"{words} -> {after}".strip()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", BEFORE)
def test_each_event_in_each_state_does_what_the_table_says(state: str, event: str) -> None:
    assert _cell(state, event) == TABLE[state].get(event, "")


REFRESH_AT, RESEND_AT = BEGUN + TIMES.refresh_s, BEGUN + TIMES.resend_s
DEADLINES = {
    "no borrower": REFRESH_AT,
    "adopted": ADOPT_UNTIL,
    "committing": REFRESH_AT,
    "granting": RESEND_AT,
    "granted": REFRESH_AT,
    "granted, uncertain": RESEND_AT,
    "revoking": RESEND_AT,
    "revoked": RESEND_AT,
    "uncertain": RESEND_AT,
    "deposed": None,
}


@pytest.mark.parametrize("state", BEFORE)
def test_each_state_has_its_deadline(state: str) -> None:
    leader = _before(state)
    assert leader.deadline() == DEADLINES[state]
    assert leader.idle == (
        state not in ("committing", "granted, uncertain", "uncertain", "deposed")
    )


def test_a_leader_that_can_plan_does_so_at_once() -> None:
    leader = _before("no borrower")
    leader.handle(_wanted(), BEGUN)
    assert leader.deadline() == float("-inf")
    assert not leader.idle


def test_the_table_has_no_other_states_and_events() -> None:
    assert TABLE.keys() == BEFORE.keys()
    assert {event for row in TABLE.values() for event in row} <= EVENTS.keys()
