"""Signs of life between two processes: up to when an answered ping lets borrowers hand out."""

from __future__ import annotations

import pytest

from tailrace.group.messages import Ping, PingResponse
from tailrace.group.pulse import Pulse
from tailrace.group.times import Times

TIMES = Times()
GROUP, TERM, ROSTER = "billing", 7, 3
NEVER = float("-inf")


@pytest.fixture
def pulse() -> Pulse:
    return Pulse(TIMES, 0.0)


def answer(ping: Ping, term: int = TERM, roster_version: int = ROSTER) -> PingResponse:
    return PingResponse(ping.number, roster_version, ((GROUP, term),))


def test_an_answer_counts_from_when_its_ping_was_sent(pulse: Pulse) -> None:
    pulse.answered(answer(pulse.ping(ROSTER, 10.0)))
    assert pulse.until(GROUP, TERM, ROSTER) == 10.0 + TIMES.lease_s - TIMES.margin_s


def test_an_answer_that_comes_late_or_twice_or_to_no_ping_takes_nothing_back(pulse: Pulse) -> None:
    first, second = pulse.ping(ROSTER, 10.0), pulse.ping(ROSTER, 11.0)
    pulse.answered(answer(second))
    until = pulse.until(GROUP, TERM, ROSTER)
    for late in (answer(first), answer(second), answer(Ping(99, ROSTER))):
        pulse.answered(late)
        assert pulse.until(GROUP, TERM, ROSTER) == until


def test_an_answer_counts_for_the_term_and_the_groups_that_it_names_alone(pulse: Pulse) -> None:
    pulse.answered(answer(pulse.ping(ROSTER, 10.0)))
    assert pulse.until(GROUP, TERM + 1, ROSTER) == NEVER
    assert pulse.until(GROUP, TERM - 1, ROSTER) == NEVER
    assert pulse.until("shipping", TERM, ROSTER) == NEVER


def test_an_answer_counts_for_borrowers_in_the_list_that_it_goes_by_alone(pulse: Pulse) -> None:
    pulse.answered(answer(pulse.ping(ROSTER, 10.0), roster_version=ROSTER - 1))
    assert pulse.until(GROUP, TERM, ROSTER) == NEVER
    assert pulse.until(GROUP, TERM, ROSTER - 1) > 10.0


def test_a_ping_is_due_at_once_and_then_once_in_a_while(pulse: Pulse) -> None:
    assert pulse.ping_at == 0.0
    pulse.ping(ROSTER, 10.0)
    assert pulse.ping_at == 10.0 + TIMES.ping_s
