"""Appending and reading."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from tailrace.backend.contract import Backend, Transaction
from tailrace.errors import InvalidValue, OutOfRange, UnknownTopic
from tailrace.log.columns import SCHEMA, encode
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tests.support.records import (
    CHUNK_BYTES,
    P0,
    P1,
    P2,
    append,
    columns,
    commit,
    create,
    read,
    record,
    values,
)

VARIED = (
    record(b"plain"),
    record(b"", key=b"empty value"),
    record(b"keyed", key=b"c7"),
    record(b"any bytes \x00\xff", key=b"\x00\xff"),
    record(b"headed", key=b"c7", headers={"content-type": b"text/plain", "trace": b"\x00\x01"}),
    record(b"empty header", headers={"": b"", "x": b""}),
    record(b"changed", key=b"c8", timestamp=0, mode=Mode.SYNC, op=Op.UPDATE),
    record(b"removed", timestamp=253_402_300_799_999, mode=Mode.COMPLETE, op=Op.DELETE),
    record(b"command", op=Op.COMMAND),
    record(b"noop", op=Op.NOOP),
)


def content(found: list[Record]) -> list[Record]:
    """The records without their offsets."""
    return [row._replace(offset=0) for row in found]


def test_a_new_partition_is_empty_and_open(backend: Backend) -> None:
    create(backend)
    bounds = backend.log.bounds(P0)
    assert bounds.start == bounds.end
    assert not bounds.sealed
    assert read(backend, P0) == []


def test_records_are_read_as_they_were_appended(backend: Backend) -> None:
    create(backend)
    (landed,) = commit(backend, Transaction(((P0, VARIED),)))
    assert content(read(backend, P0)) == list(VARIED)
    assert landed.partition == P0
    assert landed.count == len(VARIED)
    assert [row.offset for row in read(backend, P0)] == list(range(landed.start, landed.end))


def test_the_same_records_are_the_same_in_every_form(backend: Backend) -> None:
    create(backend)
    forms = (P0, VARIED), (P1, columns(VARIED)), (P2, encode(VARIED))
    commit(backend, Transaction(forms))
    for partition, _ in forms:
        assert content(read(backend, partition)) == list(VARIED)


def test_many_records_in_columns_keep_their_order(backend: Backend) -> None:
    create(backend)
    rows = [record(b"%d" % i, key=b"k%d" % (i % 7)) for i in range(5000)]
    commit(backend, Transaction(((P0, columns(rows)),)))
    assert content(read(backend, P0, bytes_max=10_000)) == rows


def test_offsets_that_records_carry_are_ignored(backend: Backend) -> None:
    create(backend)
    numbered = tuple(row._replace(offset=10**12) for row in VARIED)
    commit(backend, Transaction(((P0, numbered), (P1, columns(numbered)))))
    for partition in (P0, P1):
        assert all(row.offset < 10**12 for row in read(backend, partition))


def test_an_empty_key_is_no_key_and_no_headers_are_none(backend: Backend) -> None:
    create(backend)
    hollow = (record(b"a", key=b"", headers={}),)
    commit(backend, Transaction(((P0, hollow), (P1, columns(hollow)))))
    assert content(read(backend, P0)) == content(read(backend, P1)) == [record(b"a")]


def test_a_slice_of_columns_appends_only_the_slice(backend: Backend) -> None:
    create(backend)
    commit(backend, Transaction(((P0, columns(VARIED).slice(3, 4)),)))
    assert content(read(backend, P0)) == list(VARIED[3:7])


def test_a_large_value_is_one_record(backend: Backend) -> None:
    create(backend)
    large = bytes(range(256)) * 4096
    append(backend, P0, b"before", large, b"after")
    assert values(backend, P0) == [b"before", large, b"after"]


def test_offsets_rise_and_lie_within_the_bounds(backend: Backend) -> None:
    create(backend)
    ranges = [append(backend, P0, b"%d" % i, b"x") for i in range(10)]
    offsets = [row.offset for row in read(backend, P0)]
    bounds = backend.log.bounds(P0)
    assert all(before.end <= after.start for before, after in pairwise(ranges))
    assert offsets == [offset for landed in ranges for offset in range(landed.start, landed.end)]
    assert all(bounds.start <= offset < bounds.end for offset in offsets)


def test_a_record_is_found_again_by_its_offset(backend: Backend) -> None:
    create(backend)
    for i in range(10):
        append(backend, P0, b"%d" % i)
    for row in read(backend, P0):
        assert read(backend, P0, row.offset, row.offset + 1) == [row]


def test_partitions_do_not_mix(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    append(backend, P1, b"b")
    assert (values(backend, P0), values(backend, P1), values(backend, P2)) == ([b"a"], [b"b"], [])


@pytest.mark.parametrize("bytes_max", [1, 100, 1000])
def test_bytes_max_bounds_a_chunk_but_returns_at_least_one_record(
    backend: Backend, bytes_max: int
) -> None:
    create(backend)
    for i in range(20):
        append(backend, P0, b"%03d" % i + b"x" * 200)
    chunk = backend.log.read(P0, read(backend, P0)[0].offset, bytes_max)
    assert 1 <= chunk.records.num_rows < 20
    assert [row.value[:3] for row in read(backend, P0, bytes_max=bytes_max)] == [
        b"%03d" % i for i in range(20)
    ]


def test_reading_stops_before_the_requested_end(backend: Backend) -> None:
    create(backend)
    for i in range(6):
        append(backend, P0, b"%d" % i, b"x")
    everything = read(backend, P0)
    for stop in everything:
        below = [row for row in everything if row.offset < stop.offset]
        assert read(backend, P0, end=stop.offset) == below
    beyond = backend.log.bounds(P0).end + 1000
    assert read(backend, P0, end=beyond) == everything


def test_a_range_is_done_when_the_position_reaches_its_end(backend: Backend) -> None:
    create(backend)
    for i in range(6):
        append(backend, P0, b"%d" % i)
    position, end, _ = backend.log.bounds(P0)
    while position < end:
        position, before = backend.log.read(P0, position, CHUNK_BYTES, end).next_offset, position
        assert before < position <= end


def test_reading_at_the_end_returns_nothing_and_stays_there(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    end = backend.log.bounds(P0).end
    chunk = backend.log.read(P0, end, CHUNK_BYTES)
    assert (chunk.records.num_rows, chunk.next_offset) == (0, end)
    assert chunk.records.schema.equals(SCHEMA)


def test_reading_beyond_the_end_names_the_valid_range(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    bounds = backend.log.bounds(P0)
    with pytest.raises(OutOfRange) as caught:
        backend.log.read(P0, bounds.end + 1, CHUNK_BYTES)
    assert (caught.value.start, caught.value.end) == (bounds.start, bounds.end)
    assert caught.value.offset == bounds.end + 1


def test_an_append_of_no_records_is_refused_and_writes_nothing(backend: Backend) -> None:
    create(backend)
    nothing = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    for empty in ((), nothing):
        with pytest.raises(InvalidValue):
            backend.commit(Transaction(((P0, (record(b"a"),)), (P1, empty))))
    assert values(backend, P0) == []


@pytest.mark.parametrize(
    "partition", [Partition("order", 0, 0), Partition("orders", 1, 0), Partition("orders", 0, 3)]
)
def test_a_partition_that_was_never_created_is_unknown(
    backend: Backend, partition: Partition
) -> None:
    create(backend)
    with pytest.raises(UnknownTopic):
        backend.commit(Transaction(((P0, (record(b"a"),)), (partition, (record(b"b"),)))))
    with pytest.raises(UnknownTopic):
        backend.log.bounds(partition)
    with pytest.raises(UnknownTopic):
        backend.log.read(partition, 0, CHUNK_BYTES)
    assert values(backend, P0) == []


@pytest.mark.parametrize(
    "bad",
    [
        record(b"v")._replace(mode=3),
        record(b"v")._replace(op=5),
        record(b"v")._replace(timestamp=-1),
        record(b"v", headers={"name": "not bytes"}),  # type: ignore[dict-item]
    ],
    ids=["mode", "op", "timestamp", "header"],
)
@pytest.mark.parametrize("count", [1, 1000])
def test_a_record_that_has_no_encoding_is_refused_and_writes_nothing(
    backend: Backend, bad: Record, count: int
) -> None:
    create(backend)
    with pytest.raises(InvalidValue):
        backend.commit(
            Transaction(((P0, (record(b"a"),)), (P1, (record(b"b"),) * (count - 1) + (bad,))))
        )
    assert (values(backend, P0), values(backend, P1)) == ([], [])


@pytest.mark.parametrize("count", [1, 1000])
def test_a_null_value_in_columns_is_refused_and_writes_nothing(
    backend: Backend, count: int
) -> None:
    create(backend)
    batch = columns((record(b"b"),) * count)
    holed = batch.set_column(
        6, SCHEMA.field("value"), pa.array([b"b"] * (count - 1) + [None], pa.binary())
    )
    with pytest.raises(InvalidValue):
        backend.commit(Transaction(((P0, (record(b"a"),)), (P1, holed))))
    assert (values(backend, P0), values(backend, P1)) == ([], [])


@pytest.mark.parametrize("count", [1, 1000])
def test_a_header_named_twice_in_columns_is_refused_and_writes_nothing(
    backend: Backend, count: int
) -> None:
    create(backend)
    batch = columns((record(b"b"),) * count)
    pairs = [None] * (count - 1) + [[("name", b"1"), ("name", b"2")]]
    headers = pa.array(pairs, SCHEMA.field("headers").type)
    doubled = batch.set_column(5, SCHEMA.field("headers"), headers)
    with pytest.raises(InvalidValue):
        backend.commit(Transaction(((P0, (record(b"a"),)), (P1, doubled))))
    assert (values(backend, P0), values(backend, P1)) == ([], [])


def test_records_are_counted_between_any_offsets(backend: Backend) -> None:
    create(backend)
    assert backend.log.amount(P0) == (0, 0)
    for size in (5, 3, 4):
        append(backend, P0, *(b"%d" % number for number in range(size)))
    offsets = [row.offset for row in read(backend, P0)]
    whole = backend.log.amount(P0)
    assert whole.records == 12
    assert whole.bytes > 12
    for first, last in ((0, 12), (2, 11), (4, 5), (5, 8)):
        after = offsets[last - 1] + 1
        assert backend.log.amount(P0, offsets[first], after).records == last - first
    assert backend.log.amount(P0, offsets[3]).records == 9
    assert backend.log.amount(P0, offsets[5], offsets[5]) == (0, 0)
    assert backend.log.amount(P1).records == 0
    with pytest.raises(UnknownTopic):
        backend.log.amount(Partition("nothing", 0, 0))


def test_a_partition_that_was_never_compacted_is_whole(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a", b"b")
    assert backend.log.whole_from(P0) == 0
    with pytest.raises(UnknownTopic):
        backend.log.whole_from(Partition("nothing", 0, 0))
