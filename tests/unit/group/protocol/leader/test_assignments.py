"""The assignments of a leader, as a table: for every state and event, messages and state after.

A cell reads ``message -> state after``: the message that is due at once, and the state, unless it
stays. An event that a state does not list changes nothing. ``refused`` raises `AssertionError`: the
leader confirms a grant before it records final progress of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tailrace.group.protocol.leader.assignments import Assignments
from tailrace.group.protocol.messages import Grant, Revoke, Revoked
from tailrace.group.protocol.states import ASSIGNMENT
from tailrace.group.protocol.times import Times

GROUP, TERM, UNIT, BORROWER, EPOCH = "billing", 3, "orders/0.0", "till~p.1", 7
TIMES = Times()
BEGUN, REVOKE_TIMEOUT_S = 100.0, 5.0
TIMEOUT_AT = BEGUN + REVOKE_TIMEOUT_S
GIVE_UP_AT = TIMEOUT_AT + TIMES.free_s

Event: TypeAlias = Callable[[Assignments, float], object]


def _revoke_finished(assignments: Assignments, now: float) -> None:
    """What the leader does when the borrower has forgotten the unit."""
    assignments.forgotten(BORROWER, UNIT, EPOCH)
    if UNIT in assignments:
        assignments.end(UNIT, "revoke_finished")


def _borrower_gone(assignments: Assignments, now: float) -> None:
    """What the leader does when the borrower has ended."""
    if UNIT in assignments:
        assignments.end(UNIT, "borrower gone")
    assignments.forget(BORROWER)


def _time_passes(assignments: Assignments, now: float) -> None:
    """What a tick of the leader does."""
    for unit in assignments.give_up(now):
        assignments.end(unit, "given up")


OF_A_FREE_UNIT: dict[str, Event] = {
    "grant committed": lambda a, now: a.grant(UNIT, BORROWER, EPOCH, now),
    "adopted": lambda a, _: a.adopt(UNIT, BORROWER, EPOCH),
}
OF_AN_ASSIGNED_UNIT: dict[str, Event] = {
    "update_progress": lambda a, _: a.confirm(UNIT, "update_progress"),
    "presented": lambda a, _: a.confirm(UNIT, "presented"),
    "not presented": lambda a, now: a.grant_again(UNIT, now),
    "revoke": lambda a, now: a.revoke(UNIT, REVOKE_TIMEOUT_S, now),
    "final progress": lambda a, now: a.finish(UNIT, REVOKE_TIMEOUT_S, now),
    "fenced": lambda a, now: a.release(UNIT, "fenced", REVOKE_TIMEOUT_S, now),
}
OF_ANY_UNIT: dict[str, Event] = {
    "revoke_finished": _revoke_finished,
    "borrower gone": _borrower_gone,
    "resend is due": _time_passes,
    "revoke timeout": _time_passes,
    "answer timeout": _time_passes,
}
EVENTS = OF_A_FREE_UNIT | OF_AN_ASSIGNED_UNIT | OF_ANY_UNIT
TIME = {"revoke timeout": TIMEOUT_AT, "answer timeout": GIVE_UP_AT}
"""When timeouts happen; other events happen together with the last one."""

BEFORE: dict[str, list[tuple[str, float]]] = {
    "free": [],
    "granting": [("grant committed", BEGUN)],
    "granted": [("adopted", BEGUN)],
    "revoking": [("adopted", BEGUN), ("revoke", BEGUN)],
    "revoked, drained": [("adopted", BEGUN), ("revoke", BEGUN), ("final progress", BEGUN)],
    "revoked, fenced": [("adopted", BEGUN), ("fenced", BEGUN)],
    "revoked, overdue": [("adopted", BEGUN), ("revoke", BEGUN), ("revoke timeout", TIMEOUT_AT)],
    "free, evicted": [
        ("adopted", BEGUN),
        ("revoke", BEGUN),
        ("revoke timeout", TIMEOUT_AT),
        ("answer timeout", GIVE_UP_AT),
    ],
}
"""The events that lead to each state, and when they happen."""

TABLE: dict[str, dict[str, str]] = {
    "free": {
        "grant committed": "Grant -> granting",
        "adopted": "-> granted",
    },
    "granting": {
        "update_progress": "-> granted",
        "presented": "-> granted",
        "revoke": "Revoke -> revoking",
        "final progress": "refused",
        "fenced": "Revoked -> revoked, fenced",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Grant",
        "revoke timeout": "Grant",
        "answer timeout": "Grant",
    },
    "granted": {
        "not presented": "Grant -> granting",
        "revoke": "Revoke -> revoking",
        "final progress": "Revoked -> revoked, drained",
        "fenced": "Revoked -> revoked, fenced",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
    },
    "revoking": {
        "final progress": "Revoked -> revoked, drained",
        "fenced": "Revoked -> revoked, fenced",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Revoke",
        "revoke timeout": "Revoked -> revoked, overdue",
        "answer timeout": "Revoked -> revoked, overdue",
    },
    "revoked, drained": {
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Revoked",
        "revoke timeout": "-> free",
        "answer timeout": "-> free",
    },
    "revoked, fenced": {
        "final progress": "-> revoked, drained",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Revoked",
        "revoke timeout": "Revoked -> revoked, overdue",
        "answer timeout": "Revoked -> revoked, overdue",
    },
    "revoked, overdue": {
        "final progress": "-> revoked, drained, overdue",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Revoked",
        "answer timeout": "Revoked -> free, evicted",
    },
    "free, evicted": {
        "grant committed": "Grant -> granting, evicted",
        "adopted": "-> granted, evicted",
        "revoke_finished": "-> free",
        "borrower gone": "-> free",
        "resend is due": "Revoked",
    },
}


def _before(state: str) -> Assignments:
    assignments = Assignments(GROUP, TERM, TIMES)
    for event, now in BEFORE[state]:
        EVENTS[event](assignments, now)
        list(assignments.due(now))
    return assignments


def _state(assignments: Assignments) -> str:
    assignment = assignments.of(BORROWER, UNIT, EPOCH)
    if assignment is None:
        return "free, evicted" if assignments.distrusted else "free"
    words = [assignment.state.value]
    if assignment.state.value == "revoked":
        words += [*["drained"] * assignment.final, *["overdue"] * assignment.overdue] or ["fenced"]
    assert BORROWER in assignments.distrusted or not assignment.overdue
    if assignments.distrusted and not assignment.overdue:
        words.append("evicted")
    return ", ".join(words)


def _cell(state: str, event: str) -> str:
    """What happens, in the words of the table."""
    assignments = _before(state)
    assert _state(assignments) == state
    last = BEFORE[state][-1][1] if BEFORE[state] else BEGUN
    now = max(last, TIME.get(event, last))
    if event == "resend is due":
        now += TIMES.resend_s
    EVENTS[event](assignments, now)
    assignments.validate()
    words = []
    for message in assignments.due(now):
        assert isinstance(message, Grant | Revoke | Revoked)
        assert message == type(message)(GROUP, BORROWER, TERM, UNIT, EPOCH)
        words.append(type(message).__name__)
    after = _state(assignments)
    return " ".join(words if after == state else [*words, "->", after])


ROWS = [
    (state, event)
    for state in BEFORE
    for event in (OF_A_FREE_UNIT if "free" in state else OF_AN_ASSIGNED_UNIT) | OF_ANY_UNIT
]


@pytest.mark.parametrize(("state", "event"), ROWS)
def test_each_event_in_each_state_does_what_the_table_says(state: str, event: str) -> None:
    expected = TABLE[state].get(event, "")
    if expected == "refused":
        with pytest.raises(AssertionError, match="no step"):
            _cell(state, event)
    else:
        assert _cell(state, event) == expected


DEADLINES = {
    "granting": BEGUN + TIMES.resend_s,
    "revoking": BEGUN + TIMES.resend_s,
    "revoked, drained": BEGUN + TIMES.resend_s,
    "revoked, fenced": BEGUN + TIMES.resend_s,
    "revoked, overdue": TIMEOUT_AT + TIMES.resend_s,
    "free, evicted": GIVE_UP_AT + TIMES.resend_s,
}
"""The deadlines of the states that have one."""


@pytest.mark.parametrize("state", BEFORE)
def test_each_state_that_waits_for_an_answer_has_its_deadline(state: str) -> None:
    assert _before(state).deadline() == DEADLINES.get(state)


def test_a_timeout_that_comes_before_the_next_message_is_the_deadline() -> None:
    assignments = _before("granted")
    assignments.revoke(UNIT, TIMES.resend_s / 2, BEGUN)
    list(assignments.due(BEGUN))
    assert assignments.deadline() == BEGUN + TIMES.resend_s / 2


def test_an_assignment_is_found_by_its_borrower_and_epoch_alone() -> None:
    assignments = _before("granted")
    assert assignments.of(BORROWER, UNIT, EPOCH) is not None
    assert assignments.of("another~p.2", UNIT, EPOCH) is None
    assert assignments.of(BORROWER, UNIT, EPOCH + 1) is None


def test_the_table_has_no_other_states_and_events() -> None:
    assert TABLE.keys() == BEFORE.keys()
    listed = {(state, event) for state, row in TABLE.items() for event in row}
    assert listed <= set(ROWS)


def test_the_table_takes_every_transition_of_assignments(transitions_taken: set[object]) -> None:
    for state, event in ROWS:
        if TABLE[state].get(event) != "refused":
            _cell(state, event)
    assert transitions_taken == set(ASSIGNMENT)
