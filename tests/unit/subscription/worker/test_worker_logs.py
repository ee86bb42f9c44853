"""What a worker logs: first failures, dead letters, and outcomes that cannot be stored."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tailrace import Delivery, DiskFull, Fenced, Reject, Retry
from tailrace.backend.contract import Transaction
from tailrace.subscription.store.names import retry_queue
from tests.support.faulty_backend import FaultyBackend
from tests.support.waiting import until
from tests.support.workers import Calls, Office


def test_a_message_that_becomes_a_dead_letter_is_logged_and_its_followers_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=9, error=Reject("negative"))
    receipts = office.topic.push_many([("a", "a1"), ("a", "a2")])
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 2)
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    where = receipts[0].id
    assert logged == [
        f"mailer: {where} is a dead letter now: Reject: negative; tailrace explain {where}"
    ]


def test_outcomes_that_cannot_be_stored_are_logged_once_and_again_when_they_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tailrace.subscription")
    backend, calls = FaultyBackend(), Calls()
    office = Office(backend=backend)
    calls.fails("a1", times=1)
    office.topic.push("a1", key="a")
    refused: list[Transaction] = []

    def refuse(transaction: Transaction) -> None:
        moves = any(retry_queue("mailer") in str(where) for where, _ in transaction.appends)
        if moves and len(refused) < 3:
            refused.append(transaction)
            raise DiskFull("no disk space for the hub")

    backend.before = refuse
    with office.subscription.start(calls):
        calls.wait_done(1)
    told = [record.getMessage() for record in caplog.records if "storing" in record.getMessage()]
    assert told == [
        "mailer: storing the outcomes of calls failed, retrying: no disk space for the hub",
        "mailer: storing the outcomes of calls succeeded again",
    ]


def test_a_write_of_a_worker_that_was_replaced_is_logged_with_the_newer_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend, calls = FaultyBackend(), Calls()
    office = Office(backend=backend)
    office.topic.push("a1", key="a")
    errors: list[Exception] = [Fenced("group/subscription:mailer/0.0", 1, 2)]

    def refuse(transaction: Transaction) -> None:
        fence = transaction.fence
        if errors and fence is not None and fence.name == "group/subscription:mailer/0.0":
            raise errors.pop()

    backend.before = refuse
    with office.subscription.start(calls):
        calls.wait_done(1)
        until(lambda: "is refused" in caplog.text)
    (refused,) = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert refused.startswith("mailer: a write for shard 0.0 is refused: ")
    assert "has a newer owner (epoch 2; this owner had 1)" in refused


async def _async_handler(delivery: Delivery[Any]) -> None:
    raise LookupError("no such warehouse")


def _handler(delivery: Delivery[Any]) -> None:
    raise LookupError("no such warehouse")


@pytest.mark.parametrize("handler", [_handler, _async_handler])
def test_the_first_failure_of_a_message_is_logged_with_its_traceback(
    handler: Callable[[Delivery[Any]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    office = Office(retry=Retry(attempts=2, first="1ms"))
    office.topic.push("a1", key="a")
    with office.subscription.start(handler):
        until(lambda: len(office.subscription.dead_letters) == 1)
    first, last = [record for record in caplog.records if "failed" in record.getMessage()]
    assert first.exc_info is not None
    assert handler.__name__ in "".join(traceback.format_exception(first.exc_info[1]))
    assert last.exc_info is None


def test_a_message_that_is_rejected_on_purpose_has_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    office, calls = Office(), Calls()
    calls.fails("a1", times=1, error=Reject("negative total"))
    office.topic.push("a1", key="a")
    with office.subscription.start(calls):
        until(lambda: len(office.subscription.dead_letters) == 1)
    (record,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.exc_info is None
