"""Workers that run learn of requests on dead letters, and carry them out."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace import Delivery, Reject
from tailrace.operations.audit import read_audit
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.requests.making import Requester, is_pending, put_requests
from tailrace.subscription.store.requests.selection import LetterSelection
from tests.support.waiting import until
from tests.support.workers import Calls, Office


class _Broken:
    """Rejects everything, until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def __call__(self, delivery: Delivery[Any]) -> None:
        if not self.mended:
            raise Reject("negative")


def ask(office: Office, action: RequestAction, *keys: str) -> str:
    selection = LetterSelection(keys=tuple(key.encode() for key in keys))
    requester = Requester("ann@host", 1, f"dlq {action.value}")
    return put_requests(office.hub.backend, "mailer", selection, action, requester, now_ms=5).id


@pytest.mark.parametrize("policy", ["block", "continue"])
def test_a_running_worker_redelivers_the_dead_letters_of_a_key_in_order(policy: str) -> None:
    office, handler, broken = Office(on_dead_letter=policy), Calls(), _Broken()
    for value in (1, 2, 3):
        office.topic.push(value, key="a")
        handler.when(value, broken)
    with office.subscription.start(handler):
        until(lambda: office.subscription.describe().backlog.dlq == 3)
        broken.mended = True
        id = ask(office, RequestAction.REDELIVER, "a")
        handler.wait_done(3)
        until(lambda: not is_pending(office.hub.backend, "mailer", id))
        office.topic.push(4, key="a")
        handler.wait_done(4)
    assert handler.done == [1, 2, 3, 4]
    (entry,) = read_audit(office.hub, "mailer", 10)
    assert entry.after["done"] == "3 dead letters redelivered"


def test_a_request_waits_until_a_worker_runs() -> None:
    office, handler, broken = Office(), Calls(), _Broken()
    office.topic.push(1, key="a")
    handler.when(1, broken)
    with office.subscription.start(handler):
        until(lambda: office.subscription.describe().backlog.dlq == 1)
    id = ask(office, RequestAction.DISCARD, "a")
    assert is_pending(office.hub.backend, "mailer", id)
    with office.subscription.start(handler):
        until(lambda: not is_pending(office.hub.backend, "mailer", id))
    assert office.subscription.describe().backlog.dlq == 0
    assert handler.done == []
