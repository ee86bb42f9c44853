"""A delivery: the fields of its message, ack and nack."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.delivery.delivery import Delivery
from tailrace.errors import DecodeError, Error, Fenced
from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Message, Mode, Op
from tailrace.payload import Payload
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import Order, push


def test_a_delivery_is_a_message_with_all_its_fields(backend: Backend) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", Order, partitions=1)
    receipt = topic.push(Order(7), key="c7", headers={"trace": b"x"}, timestamp=1_495_000_000_123)
    expected = topic.read(0, 0, receipt.offset)
    decode = Payload(Order).decode_message
    with consume(topic, FakeRuntime(backend), payload=decode, until="end") as consumer:
        [delivery] = list(consumer)
    assert isinstance(delivery, Message)
    for field in (
        "id", "topic", "storage", "partition", "offset", "position", "timestamp", "timestamp_ms",
        "key", "key_bytes", "headers", "data", "value", "mode", "op",
    ):  # fmt: skip
        assert getattr(delivery, field) == getattr(expected, field), field
    assert (delivery.mode, delivery.op) == (Mode.COPY, Op.INSERT)
    assert (delivery.attempt, delivery.redelivered) == (1, False)


def test_the_repr_of_a_delivery_shows_no_payload(topic: Topic[Any], runtime: FakeRuntime) -> None:
    topic.push("secret", key="c7")
    with consume(topic, runtime, until="end") as consumer:
        shown = repr(next(iter(consumer)))
    assert "secret" not in shown
    assert "key='c7'" in shown
    assert "attempt 1" in shown


def test_a_payload_that_does_not_decode_names_its_position(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    receipt = topic.push("text", key="c7")
    decode = Payload(Order).decode_message
    with consume(topic, runtime, payload=decode, until="end") as consumer:
        delivery = next(iter(consumer))
        with pytest.raises(DecodeError, match=receipt.id):
            delivery.value  # noqa: B018


def first_of(consumer: Consumer[Any]) -> Delivery[Any]:
    return next(iter(consumer))


def test_a_nacked_delivery_cannot_be_acknowledged(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as consumer:
        delivery = first_of(consumer)
        delivery.nack(delay="1h")
        for wait in (False, True):
            with pytest.raises(Error, match=f"{delivery.id} was nacked .* its next attempt"):
                delivery.ack(wait=wait)
        assert delivery.resolved
    assert unacked_values(topic) == [0]


def test_an_acknowledged_delivery_cannot_be_nacked(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual") as consumer:
        delivery = first_of(consumer)
        delivery.ack()
        with pytest.raises(Error, match=f"{delivery.id} was acknowledged before"):
            delivery.nack()
    assert unacked_values(topic) == []


def test_a_delivery_that_the_loop_acknowledged_cannot_be_nacked(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 2, keys=1)
    with consume(topic, runtime) as consumer:
        iteration = iter(consumer)
        delivery = next(iteration)
        next(iteration)
        with pytest.raises(Error, match=f"{delivery.id} was acknowledged before"):
            delivery.nack()
        assert consumer.stats().nacked == 0


def test_a_second_ack_or_nack_of_a_delivery_does_nothing(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 2, keys=2)
    with consume(topic, runtime, ack="manual") as consumer:
        one, other = (delivery for _, delivery in zip("12", consumer, strict=False))
        for _ in range(3):
            one.ack(wait=True)
            other.nack(delay="1h")
        stats = consumer.stats()
    assert (stats.acknowledged, stats.nacked) == (1, 1)


def test_a_delivery_nacked_at_its_last_attempt_can_be_acknowledged(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 1)
    with consume(topic, runtime, ack="manual", attempts=1) as consumer:
        delivery = first_of(consumer)
        delivery.nack()
        delivery.nack()
        delivery.ack(wait=True)
        assert unacked_values(topic) == []


def test_a_delivery_of_a_revoked_partition_is_not_acknowledged_and_may_be_nacked(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 2, keys=2)
    with consume(topic, runtime, ack="manual") as consumer:
        one, other = (delivery for _, delivery in zip("12", consumer, strict=False))
        for unit, epoch in runtime.epochs.items():
            runtime.joined.drop(unit, epoch)
        with pytest.raises(Fenced):
            one.ack(wait=True)
        other.nack()
    assert unacked_values(topic) == [0, 1]


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle 0": lambda each: pickle.loads(pickle.dumps(each, 0)),
    "pickle 2": lambda each: pickle.loads(pickle.dumps(each, 2)),
    "pickle": lambda each: pickle.loads(pickle.dumps(each)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_delivery_is_pickled_and_copied_as_a_message_with_its_value(
    backend: Backend, way: str
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", Order, partitions=1)
    receipt = topic.push(Order(7), key="c7", headers={"trace": b"x"})
    decode = Payload(Order).decode_message
    with consume(topic, FakeRuntime(backend), payload=decode, until="end") as consumer:
        [delivery] = list(consumer)
        copied = COPIES[way](delivery)
    assert type(copied) is Message
    assert (copied.id, copied.value, copied.headers) == (receipt.id, Order(7), {"trace": b"x"})
    again = COPIES[way](COPIES[way](topic.read(0, 0, receipt.offset)))
    for field in ("position", "timestamp", "key_bytes", "data", "value", "mode", "op"):
        assert getattr(copied, field) == getattr(delivery, field) == getattr(again, field), field


@pytest.mark.parametrize("way", COPIES)
def test_the_copy_of_a_delivery_that_does_not_decode_raises_the_same_error(
    topic: Topic[Any], runtime: FakeRuntime, way: str
) -> None:
    receipt = topic.push("text", key="c7")
    decode = Payload(Order).decode_message
    with consume(topic, runtime, payload=decode, until="end") as consumer:
        copied = COPIES[way](COPIES[way](next(iter(consumer))))
    assert (copied.id, copied.data) == (receipt.id, b"text")
    with pytest.raises(DecodeError, match=receipt.id):
        copied.value  # noqa: B018
