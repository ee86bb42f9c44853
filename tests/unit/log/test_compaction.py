"""Which records of a segment survive its compaction, and the entries they get."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.log import compaction
from tailrace.log.columns import decode, encode, from_records, records_of
from tailrace.log.compaction import Kept, keep, last_of_keys
from tailrace.log.index import BatchEntry
from tailrace.log.record import Positions, Record

EXAMPLE = b"AABBAABBCACBAACBA"
"""The keys of the example log, at the offsets 0 to 16."""


def _records(keys: list[bytes | None], base: int = 0) -> list[Record]:
    return [
        Record(base + n, 1000 - n, 0, 0, key, None, b"v" * (n % 5)) for n, key in enumerate(keys)
    ]


def _batches(records: list[Record], size: int) -> list[pa.RecordBatch]:
    return [from_records(records[at : at + size]) for at in range(0, len(records), size)]


def _bytes(records: list[Record]) -> tuple[bytes, Positions]:
    encoded = encode(tuple(records))
    return bytes(encoded.stamp(records[0].offset)), encoded.positions


def _stored(kept: Kept) -> list[Record]:
    """Return the records that a reader finds by the entries."""
    found: list[Record] = []
    begin = kept.entries[0].position
    for entry in kept.entries:
        part = kept.data[entry.position - begin : entry.position - begin + entry.bytes]
        assert zlib.crc32(part) == entry.crc
        batch = records_of(decode(bytes(part)))
        assert [record.offset for record in batch] == list(
            range(entry.base, entry.base + entry.records)
        )
        times = [record.timestamp for record in batch]
        assert (entry.first_timestamp, entry.last_timestamp) == (min(times), max(times))
        found += batch
    return found


@pytest.mark.parametrize("size", [1, 4, 17])
def test_compacting_the_example_log_leaves_14_15_and_16(size: int) -> None:
    records = _records([bytes([key]) for key in EXAMPLE])
    assert last_of_keys(_batches(records, size)).tolist() == [14, 15, 16]
    data, positions = _bytes(records)
    kept = keep(data, positions, np.array([14, 15, 16]), 7, None)
    assert kept is not None
    assert _stored(kept) == records[14:]
    (entry,) = kept.entries
    assert (entry.base, entry.records, entry.ordinal, entry.position) == (14, 3, 0, 0)
    assert entry.appended_ms == 7


def test_records_without_a_key_count_as_those_of_one_key() -> None:
    records = _records([None, b"A", None, b"A", None])
    assert last_of_keys(_batches(records, 2)).tolist() == [3, 4]


def test_nothing_survives_of_an_empty_segment() -> None:
    assert last_of_keys([]).tolist() == []
    data, positions = _bytes(_records([b"A", b"B"]))
    assert keep(data, positions, np.array([], np.int64), 0, None) is None


def test_runs_of_consecutive_offsets_get_an_entry_each() -> None:
    records = _records([b"%d" % n for n in range(10)], base=100)
    data, positions = _bytes(records)
    kept = keep(data, positions, np.array([100, 101, 104, 107, 108, 109]), 0, None)
    assert kept is not None
    assert [(entry.base, entry.records) for entry in kept.entries] == [
        *((100, 2), (104, 1), (107, 3)),
    ]
    assert kept.span.records == 6
    assert kept.span.bytes == len(kept.data)


def test_a_long_run_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "RUN_BYTES_MAX", 200)
    records = _records([b"%d" % n for n in range(50)])
    data, positions = _bytes(records)
    kept = keep(data, positions, np.arange(50), 0, None)
    assert kept is not None
    assert _stored(kept) == records
    assert max(entry.bytes for entry in kept.entries) < 250
    assert len(kept.entries) == -(-len(data) // 200)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([None, b"A", b"B", b"longer key"]), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_the_last_of_every_key_is_kept_however_records_are_batched(
    keys: list[bytes | None], size: int, other_size: int
) -> None:
    records = _records(keys, base=5)
    survivors = last_of_keys(_batches(records, size))
    expected = sorted({record.key: record for record in records}.values())
    assert survivors.tolist() == [record.offset for record in expected]
    found: list[Record] = []
    last: BatchEntry | None = None
    for at in range(0, len(records), other_size):
        data, positions = _bytes(records[at : at + other_size])
        kept = keep(data, positions, survivors, 0, last)
        if kept is None:
            continue
        first = kept.entries[0]
        assert first.ordinal == len(found)
        assert first.position == (0 if last is None else last.position + last.bytes)
        found += _stored(kept)
        last = kept.entries[-1]
    assert found == expected
