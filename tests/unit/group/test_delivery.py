"""A delivery: the message it is, and what may be said of it."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import DecodeError, Error, Fenced
from tailrace.group.deliveries import Deliveries
from tailrace.group.delivery import Delivery
from tailrace.hub import Hub
from tailrace.message import Message, Mode, Op
from tailrace.payload import Payload
from tailrace.topic.topic import Topic
from tests.unit.group.consuming import left, push
from tests.unit.group.single_owner import SingleOwner, consume
from tests.unit.topic.orders import Order


def test_a_delivery_is_a_message_with_all_its_fields(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", Order, partitions=1)
    receipt = topic.push(Order(7), key="c7", headers={"trace": b"x"}, timestamp=1_495_000_000_123)
    expected = topic.read(0, 0, receipt.offset)
    decode = Payload(Order).decode_message
    with consume(topic, SingleOwner(backend), payload=decode, until="end") as deliveries:
        [delivery] = list(deliveries)
    assert isinstance(delivery, Message)
    for field in (
        "id", "topic", "storage", "partition", "offset", "position", "timestamp", "timestamp_ms",
        "key", "key_bytes", "headers", "data", "value", "mode", "op",
    ):  # fmt: skip
        assert getattr(delivery, field) == getattr(expected, field), field
    assert (delivery.mode, delivery.op) == (Mode.COPY, Op.INSERT)
    assert (delivery.attempt, delivery.redelivered) == (1, False)


def test_the_repr_of_a_delivery_shows_no_payload(topic: Topic[Any], runtime: SingleOwner) -> None:
    topic.push("secret", key="c7")
    with consume(topic, runtime, until="end") as deliveries:
        shown = repr(next(iter(deliveries)))
    assert "secret" not in shown
    assert "key='c7'" in shown
    assert "attempt 1" in shown


def test_a_payload_that_does_not_decode_names_its_position(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    receipt = topic.push("text", key="c7")
    decode = Payload(Order).decode_message
    with consume(topic, runtime, payload=decode, until="end") as deliveries:
        delivery = next(iter(deliveries))
        with pytest.raises(DecodeError, match=receipt.id):
            delivery.value  # noqa: B018


def first_of(deliveries: Deliveries[Any]) -> Delivery[Any]:
    return next(iter(deliveries))


def test_what_was_given_back_cannot_be_acknowledged_as_well(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as deliveries:
        delivery = first_of(deliveries)
        delivery.nack(delay="1h")
        for wait in (False, True):
            with pytest.raises(Error, match=f"{delivery.id} was given back .* its next attempt"):
                delivery.ack(wait=wait)
        assert delivery.settled
    assert left(topic) == [0]


def test_what_was_acknowledged_cannot_be_given_back_as_well(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as deliveries:
        delivery = first_of(deliveries)
        delivery.ack()
        with pytest.raises(Error, match=f"{delivery.id} was acknowledged before"):
            delivery.nack()
    assert left(topic) == []


def test_what_the_loop_has_acknowledged_cannot_be_given_back(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2, keys=1)
    with consume(topic, runtime) as deliveries:
        iteration = iter(deliveries)
        delivery = next(iteration)
        next(iteration)
        with pytest.raises(Error, match=f"{delivery.id} was acknowledged before"):
            delivery.nack()
        assert deliveries.stats().nacked == 0


def test_to_say_the_same_of_a_delivery_again_does_nothing(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2, keys=2)
    with consume(topic, runtime, ack="manual") as deliveries:
        one, other = (delivery for _, delivery in zip("12", deliveries, strict=False))
        for _ in range(3):
            one.ack(wait=True)
            other.nack(delay="1h")
        stats = deliveries.stats()
    assert (stats.acknowledged, stats.nacked) == (1, 1)


def test_what_was_given_back_at_its_last_attempt_can_be_acknowledged(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual", attempts=1) as deliveries:
        delivery = first_of(deliveries)
        delivery.nack()
        delivery.nack()
        delivery.ack(wait=True)
        assert left(topic) == []


def test_a_delivery_whose_partition_went_elsewhere_is_not_acknowledged_and_may_be_given_back(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    push(topic, 2, keys=2)
    with consume(topic, runtime, ack="manual") as deliveries:
        one, other = (delivery for _, delivery in zip("12", deliveries, strict=False))
        for unit, epoch in runtime.epochs.items():
            runtime.joined.drop(unit, epoch)
        with pytest.raises(Fenced):
            one.ack(wait=True)
        other.nack()
    assert left(topic) == [0, 1]
