"""A dead letter shows every failed attempt, and the traceback of the last one."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import DeadLetters, Delivery, MadeRequest, Reject, SubscriptionLetter
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def charge(delivery: Delivery[Any]) -> None:
    raise ConnectionError(f"the bank does not answer at attempt {delivery.attempt}")


def refuse(delivery: Delivery[Any]) -> None:
    raise Reject("no account") from LookupError(delivery.value)


@pytest.fixture
def office() -> Office:
    """The message of key a is a dead letter after three attempts."""
    office, calls = Office(), Calls()
    calls.when("a1", charge)
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 1)
    return office


def letter_of(office: Office) -> SubscriptionLetter:
    (letter,) = office.subscription.dead_letters.list()
    return letter


def resolve(office: Office, calls: Calls, request: MadeRequest) -> None:
    with office.subscription.start(calls):
        until(lambda: not office.subscription.dead_letters.is_pending(request))


def traces(office: Office) -> list[tuple[bytes, bytes]]:
    return list(office.hub.backend.table.scan("subscription-traces/mailer"))


def test_every_attempt_is_shown_with_its_time_and_error(office: Office) -> None:
    letter = letter_of(office)
    assert [each.error for each in letter.failures] == [
        f"ConnectionError: the bank does not answer at attempt {number}" for number in (1, 2, 3)
    ]
    assert letter.failures[0].at == letter.failed
    assert sorted(each.at for each in letter.failures) == [each.at for each in letter.failures]


def test_the_traceback_of_the_last_attempt_names_the_line_of_the_handler(office: Office) -> None:
    lines = letter_of(office).traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ConnectionError: the bank does not answer at attempt 3"
    assert any(line.endswith(", in charge") for line in lines)
    assert not any("thread_calls" in line for line in lines)


def test_a_rejection_shows_its_cause() -> None:
    office, calls = Office(), Calls()
    calls.when("a1", refuse)
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 1)
    trace = letter_of(office).traceback
    assert "LookupError: a1" in trace
    assert trace.endswith("Reject: no account\n")


def test_a_redelivery_that_fails_has_the_new_traceback(office: Office) -> None:
    calls = Calls()
    calls.when("a1", refuse)
    resolve(office, calls, office.subscription.dead_letters.redeliver(key="a"))
    letter = letter_of(office)
    assert letter.attempts == len(letter.failures) == 4
    assert letter.traceback.endswith("Reject: no account\n")


def redeliver(letters: DeadLetters) -> MadeRequest:
    return letters.redeliver(key="a")


def discard(letters: DeadLetters) -> MadeRequest:
    return letters.discard(key="a", reason="a test order")


@pytest.mark.parametrize("act", [redeliver, discard])
def test_the_traceback_is_removed_with_the_letter(office: Office, act: Any) -> None:
    assert len(traces(office)) == 1
    resolve(office, Calls(), act(office.subscription.dead_letters))
    assert len(office.subscription.dead_letters) == 0
    assert traces(office) == []


def test_the_traceback_is_removed_with_the_subscription(office: Office) -> None:
    assert len(traces(office)) == 1
    office.subscription.delete()
    assert traces(office) == []


def test_a_message_that_succeeds_in_the_end_leaves_no_traceback() -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=2)
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        calls.wait_done(1)
    assert traces(office) == []
