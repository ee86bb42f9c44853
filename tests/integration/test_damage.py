"""Single flipped bits: found and named in records, harmless in positions."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tailrace.backend.contract import OffsetSpan, Transaction
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.errors import CorruptBatch
from tailrace.log.columns import records_of
from tailrace.log.index import BatchEntry
from tailrace.log.record import Record
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.records import P0, P1, append, create, read, record, records

pytestmark = pytest.mark.part("log")

BATCHES = 40
SEGMENT_BYTES = 10_000
FOLD_ABOVE, FOLD_COUNT = 8, 4
CHUNK_BYTES = 20_000


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub with several segments, most entries of which are folded."""
    monkeypatch.setattr(writer, "FOLD_ABOVE", FOLD_ABOVE)
    monkeypatch.setattr(folding, "FOLD_COUNT", FOLD_COUNT)
    chance = random.Random(1)
    with closing(
        EmbeddedBackend.open(tmp_path, sync="none", segment_bytes=SEGMENT_BYTES)
    ) as opened:
        create(opened)
        for number in range(BATCHES):
            rows = tuple(
                record(chance.randbytes(chance.randrange(60)), key=b"%d" % index)
                for index in range(chance.choice((1, 5, 120)))
            )
            opened.commit(Transaction(((P0, rows), (P1, records(b"%d" % number)))))
    return tmp_path


@contextmanager
def _flipped(file: Path, position: int, bit: int) -> Iterator[None]:
    with file.open("r+b", buffering=0) as opened:
        (byte,) = os.pread(opened.fileno(), 1, position)
        os.pwrite(opened.fileno(), bytes([byte ^ 1 << bit]), position)
        try:
            yield
        finally:
            os.pwrite(opened.fileno(), bytes([byte]), position)


def _read_until_damage(
    backend: EmbeddedBackend, start: int
) -> tuple[list[Record], CorruptBatch | None]:
    """All records from `start` on, up to the first damage."""
    found: list[Record] = []
    while True:
        try:
            chunk = backend.log.read(P0, start, CHUNK_BYTES)
        except CorruptBatch as damage:
            return found, damage
        if chunk.next_offset == start:
            return found, None
        found += records_of(chunk.records)
        start = chunk.next_offset


def _batches(backend: EmbeddedBackend) -> list[tuple[Path, BatchEntry]]:
    return [
        (segment.log_path, entry)
        for segment, entries in backend.log.entries(P0)
        for entry in entries
    ]


def test_every_flipped_bit_of_a_record_is_found_and_named_and_none_is_served(
    hub: Path, record_evidence: RecordEvidence
) -> None:
    flips = count("flips", test=100, soak=1000)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    missed = 0
    with closing(EmbeddedBackend.open(hub)) as backend:
        rows = read(backend, P0)
        batches = _batches(backend)
        assert len({file for file, _ in batches}) > 3
        for _ in range(flips):
            file, entry = chance.choice(batches)
            position = entry.position + chance.randrange(entry.bytes)
            end = entry.base + entry.records
            with _flipped(file, position, chance.randrange(8)):
                before, damage = _read_until_damage(backend, 0)
                listed = [found for _, found in backend.log.verify(P0) if found is not None]
                behind, more = _read_until_damage(backend, end)
            named = [
                (error.partition, error.first, error.last, error.file)
                for error in [damage, *listed]
                if error is not None
            ]
            right = named == [(str(P0), entry.base, end - 1, str(file))] * 2
            served = before == rows[: entry.base] and behind == rows[end:] and more is None
            missed += not (right and served)
        assert read(backend, P0) == rows
    record_evidence("log", "flipped bits in committed batches", flips, [seed], missed)
    assert missed == 0


def test_flipped_bits_of_positions_do_no_harm(hub: Path, record_evidence: RecordEvidence) -> None:
    flips = count("position_flips", test=60, soak=500)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    harmed = 0
    with closing(EmbeddedBackend.open(hub)) as backend:
        rows = read(backend, P0)
        files = sorted({file.with_suffix(".positions") for file, _ in _batches(backend)})
        for _ in range(flips):
            file = chance.choice(files)
            position = chance.randrange(file.stat().st_size)
            with _flipped(file, position, chance.randrange(8)):
                harmed += read(backend, P0) != rows
    record_evidence("log", "flipped bits in positions", flips, [seed], harmed)
    assert harmed == 0


def test_missing_or_truncated_positions_do_no_harm(hub: Path) -> None:
    with closing(EmbeddedBackend.open(hub)) as backend:
        rows = read(backend, P0)
        files = sorted({file.with_suffix(".positions") for file, _ in _batches(backend)})
    files[0].unlink()
    os.truncate(files[1], 10)
    files[-1].unlink()
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert read(backend, P0) == rows
        append(backend, P0, b"next")
        assert read(backend, P0)[:-1] == rows


def test_every_flipped_bit_of_an_index_is_named_and_hides_no_record(
    hub: Path, record_evidence: RecordEvidence
) -> None:
    flips = count("index_flips", test=60, soak=500)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    missed = 0
    with closing(EmbeddedBackend.open(hub)) as backend:
        rows = read(backend, P0)
        all_files = [file.with_suffix(".index") for file, _ in _batches(backend)]
    files = sorted({file for file in all_files if file.exists()})
    assert len(files) > 3
    for _ in range(flips):
        file = chance.choice(files)
        position = chance.randrange(file.stat().st_size)
        with (
            _flipped(file, position, chance.randrange(8)),
            closing(EmbeddedBackend.open(hub)) as backend,
        ):
            before, damage = _read_until_damage(backend, 0)
            listed = [found for _, found in backend.log.verify(P0) if found is not None]
            if damage is None or not listed:
                missed += 1
                continue
            behind, more = _read_until_damage(backend, damage.last + 1)
            # All that is not read is named, and the rest is as it was.
            whole = before + rows[damage.first : damage.last + 1] + behind == rows
            named = {error.file for error in (damage, *listed)} == {str(file)}
            missed += not (whole and named and more is None)
    record_evidence("log", "flipped bits in indexes", flips, [seed], missed)
    assert missed == 0


def _spans(backend: EmbeddedBackend, rows: list[Record]) -> list[OffsetSpan]:
    """The span of each tenth of the times that there are; each holds all records of these times."""
    spans = []
    for start_ms in range(0, 1000, 100):
        span = backend.log.offsets_between(P0, start_ms, start_ms + 100)
        held = [row.offset for row in rows if start_ms <= row.timestamp < start_ms + 100]
        assert all(span.start <= offset < span.end for offset in held)
        spans.append(span)
    return spans


def test_a_damaged_index_makes_no_range_of_time_too_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", FOLD_ABOVE)
    monkeypatch.setattr(folding, "FOLD_COUNT", FOLD_COUNT)
    chance = random.Random(4)
    with closing(EmbeddedBackend.open(tmp_path, sync="none", segment_bytes=1000)) as backend:
        create(backend)
        for number in range(100):
            around = 10 * number + chance.randrange(-9, 10)
            rows = (record(b"x", timestamp=max(0, around)), record(b"y", timestamp=10 * number))
            backend.commit(Transaction(((P0, rows),)))
        stored = read(backend, P0)
        whole = _spans(backend, stored)
        times = backend.log.time_bounds(P0)
        bases = {info.base for info in backend.log.segments(P0)}
        ends = {info.end_offset for info in backend.log.segments(P0)}
        files = {file.with_suffix(".index") for file, _ in _batches(backend)}
    indexes = sorted(file for file in files if file.exists())
    assert len(indexes) > 3

    def check() -> None:
        with closing(EmbeddedBackend.open(tmp_path)) as backend:
            found = _spans(backend, stored)
            assert all(
                span.start in (before.start, *bases) and span.end in (before.end, *ends)
                for before, span in zip(whole, found, strict=True)
            )
            assert found != whole
            with pytest.raises(CorruptBatch) as caught:
                backend.log.time_bounds(P0)
            assert caught.value.file == str(index)

    for index in indexes:
        for position in (0, 9, 40, index.stat().st_size - 1):
            with _flipped(index, position, chance.randrange(8)):
                check()
        content = index.read_bytes()
        index.unlink()
        check()
        index.write_bytes(content)
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        assert (_spans(backend, stored), backend.log.time_bounds(P0)) == (whole, times)


def test_a_damaged_index_leaves_the_newest_batches_readable(hub: Path) -> None:
    with closing(EmbeddedBackend.open(hub, segment_bytes=2**20)) as backend:
        for _ in range(2 * FOLD_ABOVE):
            append(backend, P0, b"x")
        (number, last), *_ = sorted((-entry.base, file) for file, entry in _batches(backend))
    index = last.with_suffix(".index")
    for position in (0, index.stat().st_size - 1):
        with _flipped(index, position, 3), closing(EmbeddedBackend.open(hub)) as backend:
            assert [row.value for row in read(backend, P0, -number)] == [b"x"]
            append(backend, P1, b"y")
            found = [damage for _, damage in backend.log.verify(P0) if damage is not None]
            assert len(found) == 1
    index.unlink()
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert [row.value for row in read(backend, P0, -number)] == [b"x"]


@pytest.mark.parametrize("ending", [".log", ".index"])
def test_a_missing_file_is_named(hub: Path, ending: str) -> None:
    with closing(EmbeddedBackend.open(hub)) as backend:
        file = _batches(backend)[0][0].with_suffix(ending)
    file.unlink()
    with closing(EmbeddedBackend.open(hub)) as backend:
        with pytest.raises(CorruptBatch, match="the file is missing") as caught:
            read(backend, P0)
        assert caught.value.file == str(file)
        listed = [found for _, found in backend.log.verify(P0) if found is not None]
        assert {found.file for found in listed} == {str(file)}
        assert listed[0].first == 0
