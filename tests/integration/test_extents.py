"""Extents: a process without the hub reads the same records by them as the log returns."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.backend.embedded.extents import SegmentExtent
from tailrace.errors import CorruptBatch, OutOfRange, UnknownTopic
from tailrace.log.columns import SCHEMA
from tailrace.message import Partition
from tests.support.processes import Child, Report
from tests.support.records import P0, columns, create, record
from tests.support.users import directory_for_all

pytestmark = pytest.mark.part("pipelines")

RECORDS = 3000
NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[Path]:
    """The directory of the hub, which every user may enter."""
    with directory_for_all() as made:
        yield made


@pytest.fixture(params=["one segment", "many segments"])
def hub(
    request: pytest.FixtureRequest, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedBackend]:
    """Batches of 1 to 400 records, many of them folded."""
    monkeypatch.setattr(writer, "FOLD_ABOVE", 40)
    monkeypatch.setattr(folding, "FOLD_COUNT", 16)
    segment_bytes = 2**30 if request.param == "one segment" else 20_000
    chance = random.Random(5)
    with closing(
        EmbeddedBackend.open(directory, sync="none", segment_bytes=segment_bytes)
    ) as backend:
        create(backend)
        while (left := RECORDS - backend.log.bounds(P0).end) > 0:
            count = min(left, chance.choice((1, 1, 1, 3, 400)))
            rows = [
                record(
                    chance.randbytes(chance.randrange(150)), b"k", {"n": b"1"} if n % 7 else None
                )
                for n in range(count)
            ]
            backend.commit(Transaction(((P0, columns(rows)),)))
        yield backend


def _by_log(backend: EmbeddedBackend, start: int, end: int) -> pa.Table:
    batches = []
    while start < end:
        chunk = backend.log.read(P0, start, 1 << 20, end)
        batches.append(chunk.records)
        start = chunk.next_offset
    return pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks()


def _by_extents(extents: list[SegmentExtent], start: int, end: int) -> pa.Table:
    batches = [batch for extent in extents for batch in extent.read(start, end)]
    return pa.Table.from_batches(batches, schema=SCHEMA).combine_chunks()


def test_extents_hold_exactly_the_records_of_any_range(hub: EmbeddedBackend) -> None:
    chance = random.Random(6)
    for _ in range(40):
        start, end = sorted(chance.choices(range(RECORDS + 1), k=2))
        extents = hub.log.extents(P0, start, end)
        assert _by_extents(extents, start, end).equals(_by_log(hub, start, end))
        assert all(extent.start < end and extent.end > start for extent in extents)


def test_a_part_of_extents_can_be_read_alone(hub: EmbeddedBackend) -> None:
    extents = hub.log.extents(P0, 100, 2900)
    parts = [_by_extents(extents, at, min(at + 333, 2900)) for at in range(100, 2900, 333)]
    assert pa.concat_tables(parts).combine_chunks().equals(_by_log(hub, 100, 2900))


def test_extents_report_their_records_and_bytes(hub: EmbeddedBackend) -> None:
    extents = hub.log.extents(P0, 0, RECORDS)
    assert sum(extent.records for extent in extents) == RECORDS
    held = hub.log.segments(P0)
    assert sum(extent.bytes for extent in extents) == sum(segment.bytes for segment in held)
    assert [extent.base for extent in extents] == [segment.base for segment in held]


def test_there_are_no_extents_where_there_are_no_records(hub: EmbeddedBackend) -> None:
    assert hub.log.extents(P0, RECORDS, RECORDS) == []
    assert hub.log.extents(P0, 7, 7) == []
    (extent, *_) = hub.log.extents(P0, 0, 10)
    assert _by_extents([extent], extent.end, RECORDS).num_rows == 0
    with pytest.raises(OutOfRange):
        hub.log.extents(P0, RECORDS + 1, RECORDS + 2)
    with pytest.raises(UnknownTopic):
        hub.log.extents(Partition("nothing", 0, 0), 0, 1)


def _read_as_nobody(report: Report, pickled: bytes) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    table = _by_extents(pickle.loads(pickled), 50, 2000)
    report(table.column("offset").to_pylist())


def test_a_process_that_can_only_read_the_directory_decodes_them(
    hub: EmbeddedBackend, directory: Path
) -> None:
    pickled = pickle.dumps(hub.log.extents(P0, 50, 2000))
    for each in (directory, *directory.glob("topics/**/")):
        each.chmod(0o555)
    assert Child(_read_as_nobody, pickled).next_report() == list(range(50, 2000))


def test_missing_positions_are_rebuilt(hub: EmbeddedBackend, directory: Path) -> None:
    expected = _by_log(hub, 0, RECORDS)
    extents = hub.log.extents(P0, 0, RECORDS)
    for file in directory.glob("topics/*/*/*.positions"):
        file.unlink()
    assert _by_extents(extents, 0, RECORDS).equals(expected)


def test_a_flipped_bit_is_named_and_the_records_before_it_are_returned(
    hub: EmbeddedBackend,
) -> None:
    extent = max(hub.log.extents(P0, 0, RECORDS), key=lambda extent: len(extent.rows))
    log = Path(extent.directory, f"{extent.base:020d}.log")
    data = bytearray(log.read_bytes())
    entry = extent.rows[len(extent.rows) // 2]
    data[int(entry["position"]) + 3] ^= 1
    log.write_bytes(data)
    pieces = extent.read(0, RECORDS)
    damaged = int(entry["base"])
    assert next(pieces).column("offset").to_pylist() == list(range(extent.start, damaged))
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        next(pieces)
    assert (caught.value.partition, caught.value.first) == (str(P0), damaged)


def test_a_missing_file_is_named(hub: EmbeddedBackend) -> None:
    extents = hub.log.extents(P0, 0, RECORDS)
    log = Path(extents[0].directory, f"{0:020d}.log")
    log.unlink()
    with pytest.raises(CorruptBatch, match="the file is missing"):
        list(extents[0].read(0, RECORDS))
