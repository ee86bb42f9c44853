"""Reading topics: one record, a partition, all of it in lineage order."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Chunk
from tailrace.errors import BackendUnavailable, InvalidValue, OutOfRange
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tests.support.faulty_backend import FaultyBackend
from tests.support.topics import Order


def test_reading_at_the_end_is_out_of_range_with_the_valid_range() -> None:
    topic = Hub.from_backend(MemoryBackend()).create_topic("t", bytes, partitions=1)
    with pytest.raises(OutOfRange, match="the partition is empty"):
        topic.read(0, 0, 0)
    topic.push_many([(None, b"x")] * 3)
    with pytest.raises(OutOfRange, match="0 <= offset < 3") as caught:
        topic.read(0, 0, 3)
    assert (caught.value.start, caught.value.end) == (0, 3)
    with pytest.raises(OutOfRange, match="0 <= offset < 3"):
        topic.read(0, 0, -1)


def test_reading_in_a_gap_names_the_next_record() -> None:
    topic = Hub.from_backend(MemoryBackend(gap_every=1)).create_topic("t", bytes, partitions=1)
    first, second = topic.push(b"a").offset, topic.push(b"b").offset
    assert second > first + 1
    with pytest.raises(OutOfRange, match=f"the next record is at {second}") as caught:
        topic.read(0, 0, first + 1)
    assert caught.value.next_offset == second
    with pytest.raises(OutOfRange, match=f"0 <= offset < {second + 1}"):
        topic.read(0, 0, second + 1)


@pytest.mark.parametrize(("storage", "partition"), [(1, 0), (-1, 0), (0, 4), (0, -1)])
def test_reading_an_unknown_partition_is_refused(
    orders: Topic[Order], storage: int, partition: int
) -> None:
    for read in (orders.read, orders.batches):
        with pytest.raises(InvalidValue, match="valid: 0 to"):
            read(storage, partition, 0)


def test_batches_end_at_the_end_offset_of_the_call(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    topic.push_many([(None, b"a")] * 3)
    batches = topic.batches(0, 0)
    topic.push(b"b")
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"a"] * 3


def test_batches_from_one_offset_to_another(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    receipts = topic.push_many([(None, b"%d" % i) for i in range(10)])
    batches = topic.batches(0, 0, receipts[3].offset, receipts[6].offset)
    assert [v for batch in batches for v in batch["value"].to_pylist()] == [b"3", b"4", b"5"]
    with pytest.raises(OutOfRange):
        topic.batches(0, 0, 1000)


def test_a_reader_holds_back_partitions_that_follow_unread_ones(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    topic.push(b"old", key="k")
    topic.scale(12)
    topic.push(b"new", key="k")
    reader = topic.reader()
    assert [read.partition.storage for read in reader.poll()] == [0]
    assert [read.partition.storage for read in reader.poll()] == [1]
    assert reader.poll() == []


def test_a_reader_sees_later_records_and_skips_empty_storage_topics(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes)
    reader = topic.reader()
    assert reader.poll() == []
    for partitions in (12, 8, 6):
        topic.scale(partitions)
    topic.push(b"x", key="k")
    [read] = reader.poll()
    assert read.partition.storage == 3


def test_a_reader_starts_at_the_given_offsets(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    receipts = topic.push_many([(None, b"%d" % i) for i in range(5)])
    topic.scale(4)
    topic.push(b"new", key="k")
    reader = topic.reader({Partition("t", 0, 0): receipts[3].offset})
    found = [value for read in reader.poll() for value in read.records["value"].to_pylist()]
    assert found == [b"3", b"4"]
    assert [read.partition.storage for read in reader.poll()] == [1]


def test_a_reader_that_starts_beyond_the_end_is_refused(hub: Hub) -> None:
    topic = hub.create_topic("t", bytes, partitions=1)
    end = topic.push(b"x").offset + 100
    with pytest.raises(OutOfRange, match=f"no record at t/0.0@{end}"):
        topic.reader({Partition("t", 0, 0): end}).poll()


def test_a_poll_that_failed_halfway_loses_nothing(
    hub: Hub, backend: FaultyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = hub.create_topic("t", bytes)
    topic.push_many([(f"k{i}", b"%d" % i) for i in range(20)])
    reader = topic.reader()
    whole = backend.log.read
    turns = iter(range(10))

    def read(partition: Partition, start: int, bytes_max: int, end: int | None = None) -> Chunk:
        if next(turns) == 2:
            raise BackendUnavailable("the disk is away for a moment")
        return whole(partition, start, bytes_max, end)

    monkeypatch.setattr(backend.log, "read", read)
    with pytest.raises(BackendUnavailable):
        reader.poll()
    found = [value for read in reader.poll() for value in read.records["value"].to_pylist()]
    assert len(found) == 20
    assert set(found) == {b"%d" % i for i in range(20)}
