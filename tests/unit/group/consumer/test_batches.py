"""The messages of a group in columns."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tests.support.fake_runtime import FakeRuntime, consume
from tests.support.groups import unacked_values
from tests.support.topics import push


def test_batches_without_a_block_leave_the_group_at_their_end(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 10)
    assert sum(b.num_rows for b in consume(topic, runtime, until="end").batches()) == 10
    assert runtime.left
    assert unacked_values(topic) == []


def test_batches_have_the_public_columns_and_name_their_partition(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    push(topic, 100)
    rows = 0
    with consume(topic, runtime, until="end", batch_size=7) as consumer:
        for batch in consumer.batches():
            assert batch.schema.names == [
                "offset", "timestamp", "mode", "op", "key", "headers", "value",
            ]  # fmt: skip
            assert 1 <= batch.num_rows <= 7
            where = Partition.parse((batch.schema.metadata or {})[b"partition"].decode())
            first = batch["offset"][0].as_py()
            expected = topic.read(where.storage, where.number, first)
            assert batch["value"][0].as_py() == expected.data
            rows += batch.num_rows
    assert rows == 100
    assert unacked_values(topic) == []


def test_batches_name_the_offset_below_which_rows_are_redelivered(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 10)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime, batch_size=4) as consumer:
        raise ZeroDivisionError(next(iter(consumer.batches())))
    said = {}
    with consume(topic, FakeRuntime(backend), until="end", batch_size=3) as consumer:
        for batch in consumer.batches():
            below = (batch.schema.metadata or {}).get(b"redelivered_below", b"0")
            for offset, value in zip(batch["offset"], batch["value"], strict=True):
                said[int(value.as_py())] = offset.as_py() < int(below)
            assert (int(below) > batch["offset"][0].as_py()) == (below != b"0")
    assert said == {number: number < 4 for number in range(10)}


def test_a_batch_of_one_nacked_message_is_marked_as_redelivered(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 1)
    with consume(topic, runtime) as consumer:
        delivery = next(iter(consumer))
        delivery.nack()
        metadata = next(iter(consumer.batches())).schema.metadata or {}
        assert metadata[b"redelivered_below"] == str(delivery.offset + 1).encode()


def test_a_batch_is_acknowledged_when_the_next_is_requested(
    backend: Backend, runtime: FakeRuntime
) -> None:
    topic = Hub.from_backend(backend).create_topic("orders", partitions=1)
    push(topic, 10)
    with pytest.raises(ZeroDivisionError), consume(topic, runtime, batch_size=1) as consumer:
        raise ZeroDivisionError([batch for _, batch in zip("12", consumer.batches(), strict=False)])
    assert unacked_values(topic) == list(range(1, 10))


def test_batches_stop_at_the_limit(topic: Topic[Any], runtime: FakeRuntime) -> None:
    push(topic, 100)
    with consume(topic, runtime, limit=33) as consumer:
        assert sum(batch.num_rows for batch in consumer.batches()) == 33


def test_batches_with_manual_acknowledgement_are_refused(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    refused = pytest.raises(InvalidValue, match="each batch is acknowledged as a whole")
    with consume(topic, runtime, ack="manual") as consumer, refused:
        next(iter(consumer.batches()))
