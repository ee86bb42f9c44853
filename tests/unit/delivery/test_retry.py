"""The retry policy: how often and how soon a failed delivery is attempted again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace
from tailrace import Retry
from tailrace.delivery.retry import DEFAULT_RETRY
from tailrace.errors import InvalidValue


def delays_s(retry: Retry, count: int, random: float = 0.0) -> list[float]:
    return [retry.delay(attempt, random).total_seconds() for attempt in range(1, count + 1)]


def test_the_delay_doubles_up_to_the_longest() -> None:
    retry = Retry(first="1s", max="10s")
    assert delays_s(retry, 6) == [1, 2, 4, 8, 10, 10]


def test_a_random_number_shortens_the_delay_by_at_most_one_half() -> None:
    retry = Retry(first="2s")
    assert retry.delay(1, 0.0) == timedelta(seconds=2)
    assert retry.delay(1, 0.5) == timedelta(seconds=1.5)
    assert retry.delay(2, 0.5) == timedelta(seconds=3)


def test_without_a_number_of_attempts_there_is_no_last_one() -> None:
    retry = Retry()
    assert retry.attempts is None
    assert retry.delay(1_000_000, 0.0) == timedelta(minutes=10)


def test_a_number_of_attempts_alone_keeps_the_delays_of_the_default_policy() -> None:
    retry = Retry(attempts=9)
    assert delays_s(retry, 9) == delays_s(DEFAULT_RETRY, 9)
    assert Retry(DEFAULT_RETRY.attempts) == DEFAULT_RETRY


def test_a_policy_is_written_as_in_the_documentation_and_compared_by_value() -> None:
    retry = Retry(attempts=8, first="1s", max="10m")
    assert retry == Retry(8, first=timedelta(seconds=1), max=timedelta(minutes=10))
    assert len({retry, Retry(attempts=8, first="1000ms", max="600s")}) == 1
    assert tailrace.Retry is Retry


@given(attempt=st.integers(1, 10**9), random=st.floats(0, 1, exclude_max=True))
def test_jitter_shortens_a_delay_by_at_most_a_half(attempt: int, random: float) -> None:
    retry = Retry(first="2s", max="1m")
    longest, delay = retry.delay(attempt, 0.0), retry.delay(attempt, random)
    assert longest / 2 <= delay <= longest


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"attempts": 2.5}, "attempts is 2.5"),
        ({"attempts": True}, "attempts is True"),
        ({"first": "0s"}, "first is '0s'"),
        ({"first": 5}, "first is 5"),
        ({"first": "20m"}, "max is '10m'"),
        ({"max": "-1s"}, "max is '-1s'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        Retry(**options)
