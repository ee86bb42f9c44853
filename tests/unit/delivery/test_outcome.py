"""What an error of a handler means for its message."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest

from tailrace import InvalidValue, Reject, RetryLater
from tailrace.delivery.outcome import CallOutcome, OutcomeKind, outcome_of


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, CallOutcome(OutcomeKind.SUCCESS)),
        (ValueError("no stock"), CallOutcome(OutcomeKind.RETRY, "ValueError: no stock")),
        (TimeoutError(), CallOutcome(OutcomeKind.RETRY, "TimeoutError")),
        (Reject("negative"), CallOutcome(OutcomeKind.REJECT, "Reject: negative")),
        (
            RetryLater("30s"),
            CallOutcome(OutcomeKind.RETRY, "RetryLater: in 30 s", timedelta(seconds=30)),
        ),
        (
            RetryLater(timedelta(minutes=1), "the bank is closed"),
            CallOutcome(OutcomeKind.RETRY, "RetryLater: the bank is closed", timedelta(minutes=1)),
        ),
    ],
)
def test_an_error_is_classified(error: Exception | None, expected: CallOutcome) -> None:
    assert outcome_of(error) == expected


def test_an_outcome_has_the_traceback_of_its_error_and_tells_decisions_from_errors() -> None:
    try:
        raise ValueError("no stock")
    except ValueError as raised:
        outcome = outcome_of(raised)
    assert outcome.trace.splitlines()[0] == "Traceback (most recent call last):"
    assert outcome.trace.splitlines()[-1] == "ValueError: no stock"
    assert not outcome.decided
    assert outcome_of(Reject("negative")).decided
    assert outcome_of(RetryLater("30s")).decided
    assert outcome_of(None).trace == ""


@pytest.mark.parametrize("error", [Reject("negative"), RetryLater("30s", "closed")])
def test_the_errors_of_a_handler_can_be_pickled_and_copied(error: Exception) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert vars(other) == vars(error)


def test_a_delay_that_is_none_is_refused_where_it_is_raised() -> None:
    with pytest.raises(InvalidValue, match="delay"):
        RetryLater("soon")
