"""A function of a worker decides which messages its handler is called with."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import Message
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_message_that_does_not_pass_the_filter_is_acknowledged_without_a_call() -> None:
    office, calls = Office(filter="header.country == 'IN'"), Calls()
    office.topic.push("a1", key="a", headers={"country": "IN"})
    office.topic.push("a2", key="a", headers={"country": "FR"})
    office.topic.push("a3", key="a", headers={"country": "IN"})
    with office.subscription.start(calls) as worker:
        calls.wait_done(2)
        until(lambda: worker.stats().filtered == 1)
    with office.subscription.start(calls):
        office.topic.push("a4", key="a", headers={"country": "IN"})
        calls.wait_done(3)
    assert calls.done == ["a1", "a3", "a4"]


def test_a_function_filters_messages_also_behind_a_failed_one() -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=1)
    office.topic.push_many([("a", "a1"), ("a", "a2"), ("a", "a3")])

    def wanted(message: Message[Any]) -> bool:
        return bool(message.value != "a2")

    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(2)
    assert calls.done == ["a1", "a3"]


def test_a_filter_that_fails_is_a_failed_attempt() -> None:
    office, calls, errors = Office(), Calls(), iter([RuntimeError("no database")])

    def wanted(message: Message[Any]) -> bool:
        for error in errors:
            raise error
        return True

    office.topic.push("a1", key="a")
    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(1)
    assert calls.calls == [("a1", 2)]


@pytest.mark.parametrize("first", [RuntimeError("no database"), None], ids=["raises", "none"])
def test_what_a_filter_refuses_is_not_called_although_it_failed_before(
    first: RuntimeError | None,
) -> None:
    office, calls, failed = Office(), Calls(), iter([first])

    def wanted(message: Message[Any]) -> Any:
        for error in failed:
            if error is None:
                return None
            raise error
        return message.value != "a1"

    office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls, filter=wanted) as worker:
        calls.wait_done(1)
        assert worker.stats().filtered == 1
        assert worker.stats().failed == 1
    assert calls.done == ["a2"]


def test_a_filter_that_exits_is_a_failed_attempt() -> None:
    office, calls, errors = Office(), Calls(), iter([SystemExit(1)])

    def wanted(message: Message[Any]) -> bool:
        for error in errors:
            raise error
        return True

    office.topic.push("a1", key="a")
    with office.subscription.start(calls, filter=wanted):
        calls.wait_done(1)
    assert calls.calls == [("a1", 2)]
