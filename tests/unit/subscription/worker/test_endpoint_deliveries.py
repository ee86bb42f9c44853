"""Deliveries to an endpoint: what is sent, signed, changed while workers run, and kept in order."""

from __future__ import annotations

import base64
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks import Webhook, WebhookVerificationError

import tailrace
from tailrace import InvalidValue, Retry, SubscriptionExists
from tests.support.http_endpoint import OK, Answer, Connection, HttpEndpoint, Posted, answers
from tests.support.waiting import until
from tests.support.workers import SOON, Office

SECRETS = [f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (1, 2, 3)]


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    with HttpEndpoint() as server:
        yield server


def office_for(endpoint: HttpEndpoint, **options: Any) -> Office:
    options.setdefault("retry", SOON)
    return Office(endpoint=endpoint.url, allow_private=True, **options)


def after_200_ms(connection: Connection) -> None:
    """Answer with success, late."""
    time.sleep(0.2)
    OK(connection)


def verifies(posted: Posted, secret: str) -> bool:
    """True if the official package accepts the signature by this secret."""
    try:
        Webhook(secret).verify(posted.body, posted.headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def test_a_delivery_is_a_signed_cloud_event(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, secret=SECRETS[0])
    receipt = office.topic.push({"id": 1}, key="c7", headers={"country": "IN"})
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    (posted,) = endpoint.requests
    event: Any = from_binary(HTTPMessage(posted.headers, posted.body), JSONFormat())
    assert (event.get_id(), event.get_type(), event.get_data()) == (receipt.id, "orders", {"id": 1})
    assert event.get_time() == office.topic.read(0, 0, 0).timestamp
    assert posted.path == "/hook"
    assert posted.headers["tailrace-header-country"] == "IN"
    assert posted.headers["webhook-id"] == posted.headers["ce-id"] == receipt.id
    assert verifies(posted, SECRETS[0])
    assert not verifies(posted, SECRETS[1])
    assert not verifies(posted._replace(body=b'{"id": 2}'), SECRETS[0])


@pytest.mark.parametrize(
    ("value", "content_type"),
    [
        (b"\x00\xff", "application/octet-stream"),
        ("Zoë", "text/plain; charset=utf-8"),
        ([1, 2], "application/json"),
    ],
)
def test_a_body_is_the_payload_as_it_is_stored(
    endpoint: HttpEndpoint, value: object, content_type: str
) -> None:
    office = office_for(endpoint)
    office.topic.push(value)
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    (posted,) = endpoint.requests
    assert posted.body == office.topic.read(0, 0, 0).data
    assert posted.headers["content-type"] == content_type


def test_without_a_secret_a_delivery_has_no_signature(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint)
    office.topic.push(1)
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    assert not any(name.startswith("webhook-") for name in endpoint.requests[0].headers)


def test_while_secrets_change_deliveries_are_signed_by_both(
    endpoint: HttpEndpoint, tmp_path: Path
) -> None:
    (tmp_path / "secrets").write_text(f"{SECRETS[0]}\n{SECRETS[1]}\n")
    office = office_for(endpoint, secret=f"file:{tmp_path / 'secrets'}")
    office.topic.push(1)
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    assert [verifies(endpoint.requests[0], secret) for secret in SECRETS] == [True, True, False]


def test_running_workers_follow_changes_of_the_endpoint(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, retry=Retry(None, first="10ms", max="20ms"))
    with HttpEndpoint() as other, office.subscription.start() as worker:
        office.topic.push(1, key="a")
        until(lambda: worker.stats().succeeded == 1)
        office.subscription.update(endpoint=other.url, secret=SECRETS[2])
        numbers = iter(range(2, 1000))

        def arrived() -> list[Posted]:
            office.topic.push(next(numbers), key="a")
            return [each for each in other.requests if verifies(each, SECRETS[2])]

        until(arrived)
        other.answer = lambda posted, before: after_200_ms
        office.subscription.update(timeout="50ms")

        def too_late() -> bool:
            office.topic.push(next(numbers), key="b")
            head = office.subscription.explain("b").head
            return head is not None and head.error == "no complete answer within 0.05 s"

        until(too_late)
        office.subscription.update(endpoint=endpoint.url, timeout="5s", secret="")
        until(lambda: "webhook-id" not in endpoint.requests[-1].headers)
        until(lambda: office.subscription.explain("b").head is None)


def test_a_message_that_is_in_rq_is_delivered_as_it_was_pushed(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, secret=SECRETS[0])
    endpoint.answer = lambda posted, before: OK if before else answers(500)
    office.topic.push({"id": 1}, key="c7", headers={"country": "IN"})
    with office.subscription.start() as worker:
        until(lambda: worker.stats().succeeded == 1)
    first, second = (dict(each.headers) for each in endpoint.requests)
    assert (first.pop("ce-attempt"), second.pop("ce-attempt")) == ("1", "2")
    for headers in (first, second):
        del headers["webhook-timestamp"], headers["webhook-signature"]
    assert first == second
    assert all(verifies(each, SECRETS[0]) for each in endpoint.requests)


def test_the_sequence_rises_for_each_key_over_failures_restarts_and_scalings(
    endpoint: HttpEndpoint,
) -> None:
    def answer(posted: Posted, before: int) -> Answer:
        return answers(503) if int(posted.body) % 7 == 0 and before < 2 else OK

    endpoint.answer = answer
    office = office_for(endpoint, partitions=2, retry=Retry(5, first="5ms", max="5ms"))
    total = 0
    for partitions in (4, 8):
        for _ in range(2):
            pairs = [(f"k{number % 10}", number) for number in range(total, total + 60)]
            office.topic.push_many(pairs)
            total += 60
            with office.subscription.start() as worker:
                until(lambda worker=worker: worker.stats().succeeded >= 60)  # type: ignore[misc]
        office.topic.scale(partitions)
    first: dict[str, Posted] = {}
    for posted in endpoint.requests:
        first.setdefault(posted.body.decode(), posted)
    sequences: defaultdict[str, list[str]] = defaultdict(list)
    for posted in endpoint.requests:
        sequences[posted.key].append(posted.sequence)
    assert len(first) == total
    assert {posted.sequence[7:13] for posted in endpoint.requests} == {"000000", "000001"}
    for key, found in sequences.items():
        assert found == sorted(found), key
    numbers = [int(posted.body) for posted in first.values() if posted.key == "k3"]
    assert numbers == sorted(numbers)


def test_a_request_that_was_received_twice_has_the_same_sequence_and_a_higher_epoch(
    endpoint: HttpEndpoint,
) -> None:
    office = office_for(endpoint, retry=Retry(3, first="500ms", max="500ms"))
    endpoint.answer = lambda posted, before: OK if before else answers(500)
    office.topic.push(1, key="a")
    for calls in (1, 2):
        with office.subscription.start():
            until(lambda calls=calls: len(endpoint.requests) == calls)  # type: ignore[misc]
    one, other = endpoint.requests
    assert one.sequence == other.sequence
    assert int(one.headers["ce-epoch"]) < int(other.headers["ce-epoch"])


def test_dead_letters_are_redelivered_to_the_endpoint_in_order(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, secret=SECRETS[0])
    endpoint.answer = lambda posted, before: answers(422) if posted.body == b"1" else OK
    office.topic.push_many([("a", 1), ("a", 2), ("b", 3)])
    with office.subscription.start() as worker:
        until(lambda: len(office.subscription.dead_letters) == 2)
        endpoint.answer = lambda posted, before: OK
        office.subscription.dead_letters.redeliver(key="a", reason="the order is known now")
        until(lambda: worker.stats().succeeded == 3)
    found = [
        (each.body, each.headers["ce-attempt"]) for each in endpoint.requests if each.key == "a"
    ]
    assert found == [(b"1", "1"), (b"1", "2"), (b"2", "1")]
    assert all(verifies(each, SECRETS[0]) for each in endpoint.requests)


def test_an_existing_subscription_with_another_endpoint_is_another_one(
    endpoint: HttpEndpoint,
) -> None:
    office = office_for(endpoint, secret=SECRETS[0])
    create = office.hub.create_subscription
    same: dict[str, Any] = {
        "topic": "orders",
        "retry": SOON,
        "endpoint": endpoint.url,
        "allow_private": True,
        "secret": SECRETS[0],
        "exist_ok": True,
    }
    create("mailer", **same)
    for option, value in (
        ("endpoint", "https://crm.example/"),
        ("secret", SECRETS[1]),
        ("timeout", "1s"),
        ("retry_statuses", [404]),
    ):
        with pytest.raises(SubscriptionExists) as raised:
            create("mailer", **(same | {option: value}))
        assert not any(secret[6:] in str(raised.value) for secret in SECRETS)
    with pytest.raises(SubscriptionExists, match=r"its endpoint is http.*, not none"):
        create("mailer", topic="orders", retry=SOON, exist_ok=True)


def test_a_handler_and_its_options_are_refused(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint)
    with pytest.raises(InvalidValue, match="not to a handler"):
        office.subscription.start(print)
    for options in ({"batch": True}, {"type": int}, {"guarantee": "exactly-once"}):
        with pytest.raises(InvalidValue, match=f"{next(iter(options))} is an option of handlers"):
            office.subscription.start(**options)
    mailer = office.hub.create_subscription("other", topic="orders")
    with pytest.raises(InvalidValue, match="has no endpoint"):
        mailer.start()


def test_no_secret_is_in_what_users_print(endpoint: HttpEndpoint) -> None:
    office = office_for(endpoint, secret=SECRETS[0])
    printed = f"{office.subscription.definition} {office.subscription.describe()}"
    assert endpoint.url in printed
    assert SECRETS[0][6:] not in printed


def test_an_endpoint_is_awaited_by_the_same_names(endpoint: HttpEndpoint, tmp_path: Path) -> None:
    import asyncio

    async def deliver() -> None:
        async with await tailrace.aio.open(tmp_path / "hub", sync="none") as hub:
            orders = await hub.create_topic("orders")
            crm = await hub.create_subscription(
                "crm", topic="orders", endpoint=endpoint.url, allow_private=True
            )
            await orders.push(1)
            async with await crm.start() as worker:
                while worker.stats().succeeded == 0:
                    await asyncio.sleep(0.01)

    asyncio.run(deliver())
    assert [posted.body for posted in endpoint.requests] == [b"1"]
