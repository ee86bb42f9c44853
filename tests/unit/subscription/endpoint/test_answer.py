"""The outcome of an answer: what it says, when the next attempt is, and what people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.outcome import OutcomeKind
from tailrace.subscription.endpoint.answer import (
    Answer,
    Delays,
    describe_answer,
    outcome_of_failure,
    parse_retry_after,
)

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
DELAYS = Delays(timedelta(seconds=1), timedelta(minutes=10))


@given(
    st.integers(100, 999).filter(lambda status: not 200 <= status < 300),
    st.binary(max_size=300),
    st.text(max_size=50),
    st.text(max_size=50),
)
def test_every_answer_has_an_outcome_and_one_printable_line(
    status: int, body: bytes, retry_after: str, location: str
) -> None:
    outcome = outcome_of_failure(Answer(status, body, retry_after, location), (), DELAYS, NOW)
    expected = OutcomeKind.RETRY
    if 300 <= status < 500 and status not in (408, 425, 429):
        expected = OutcomeKind.REJECT
    assert outcome.kind is expected
    assert outcome.error.isprintable()
    assert outcome.delay is None or DELAYS.usual <= outcome.delay <= DELAYS.longest


def test_only_429_and_503_set_the_time_of_the_next_attempt() -> None:
    delays = {
        status: outcome_of_failure(Answer(status, b"", "30"), (), DELAYS, NOW).delay
        for status in (408, 425, 429, 500, 503)
    }
    wait = timedelta(seconds=30)
    assert delays == {408: None, 425: None, 429: wait, 500: None, 503: wait}


@pytest.mark.parametrize(
    ("asked", "seconds"), [("0", None), ("7", 10), ("10", 10), ("30", 30), ("900", 600)]
)
def test_no_other_delay_of_the_policy_can_end_before_retry_after(
    asked: str, seconds: int | None
) -> None:
    delays = Delays(timedelta(seconds=10), timedelta(minutes=10))
    delay = outcome_of_failure(Answer(503, b"", asked), (), delays, NOW).delay
    assert delay == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("9" * 400, 10**9),
        ("Thu, 19 Nov 2026 12:00:30 GMT", 30),
        ("Thursday, 19-Nov-26 12:00:30 GMT", 30),
        ("Thu, 19 Nov 2026 11:00:00 GMT", 0),
        ("", None),
        (None, None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Thu, 99 Nov 2026 99:99:99 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert parse_retry_after(text, NOW) == expected


def test_the_body_is_kept_in_one_line() -> None:
    answer = Answer(500, "line 1\r\nline 2\x1b[31m \ud7ff".encode())
    assert describe_answer(answer) == "HTTP 500: line 1 line 2\\x1b[31m \\xd7ff"


def test_the_target_of_a_redirect_is_shown_without_its_secrets() -> None:
    answer = Answer(302, b"", None, "https://user:pass@crm.example/a?token=1#part")
    assert describe_answer(answer) == (
        "HTTP 302 to https://crm.example/a: redirects are not followed"
    )
