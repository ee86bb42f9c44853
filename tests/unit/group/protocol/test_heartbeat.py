"""Heartbeats between two processes: until when an answered ping allows deliveries."""

from __future__ import annotations

import pytest

from tailrace.group.protocol.heartbeat import Heartbeat
from tailrace.group.protocol.messages import Ping, PingResponse
from tailrace.group.protocol.times import Times

TIMES = Times()
GROUP, TERM, ROSTER = "billing", 7, 3
NEVER = float("-inf")


@pytest.fixture
def heartbeat() -> Heartbeat:
    return Heartbeat(TIMES, 0.0)


def answer(ping: Ping, term: int = TERM, roster_version: int = ROSTER) -> PingResponse:
    return PingResponse(ping.number, roster_version, ((GROUP, term),))


def test_an_answer_counts_from_when_its_ping_was_sent(heartbeat: Heartbeat) -> None:
    heartbeat.answered(answer(heartbeat.ping(ROSTER, 10.0)))
    assert heartbeat.until(GROUP, TERM, ROSTER) == 10.0 + TIMES.lease_s - TIMES.margin_s


def test_an_answer_that_is_late_or_repeated_or_unasked_changes_nothing(
    heartbeat: Heartbeat,
) -> None:
    first, second = heartbeat.ping(ROSTER, 10.0), heartbeat.ping(ROSTER, 11.0)
    heartbeat.answered(answer(second))
    until = heartbeat.until(GROUP, TERM, ROSTER)
    for late in (answer(first), answer(second), answer(Ping(99, ROSTER))):
        heartbeat.answered(late)
        assert heartbeat.until(GROUP, TERM, ROSTER) == until


def test_an_answer_counts_only_for_the_term_and_the_groups_that_it_names(
    heartbeat: Heartbeat,
) -> None:
    heartbeat.answered(answer(heartbeat.ping(ROSTER, 10.0)))
    assert heartbeat.until(GROUP, TERM + 1, ROSTER) == NEVER
    assert heartbeat.until(GROUP, TERM - 1, ROSTER) == NEVER
    assert heartbeat.until("shipping", TERM, ROSTER) == NEVER


def test_an_answer_counts_only_for_the_roster_version_that_it_names(
    heartbeat: Heartbeat,
) -> None:
    heartbeat.answered(answer(heartbeat.ping(ROSTER, 10.0), roster_version=ROSTER - 1))
    assert heartbeat.until(GROUP, TERM, ROSTER) == NEVER
    assert heartbeat.until(GROUP, TERM, ROSTER - 1) > 10.0


def test_a_ping_is_due_at_once_and_then_at_intervals(heartbeat: Heartbeat) -> None:
    assert heartbeat.ping_at == 0.0
    heartbeat.ping(ROSTER, 10.0)
    assert heartbeat.ping_at == 10.0 + TIMES.ping_s
