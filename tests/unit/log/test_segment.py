"""One segment: batches are read as they were written, or named as damaged."""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.log.columns import encode, records_of
from tailrace.log.disk import Disk
from tailrace.log.index import BatchEntry
from tailrace.log.record import Record
from tailrace.log.segment import Segment, segment_name
from tests.support.records import record


def _write(segment: Segment, values: list[bytes], after: BatchEntry | None = None) -> BatchEntry:
    """Write a batch after another, and return its entry."""
    encoded = encode(tuple(record(value) for value in values))
    base = segment.base if after is None else after.base + after.records
    data = encoded.stamp(base)
    entry = BatchEntry(
        base=base,
        records=encoded.count,
        ordinal=0 if after is None else after.ordinal + after.records,
        position=0 if after is None else after.position + after.bytes,
        bytes=len(data),
        first_timestamp=encoded.first_timestamp,
        last_timestamp=encoded.last_timestamp,
        appended_ms=1,
        crc=zlib.crc32(data),
    )
    segment.write(entry, data, encoded.positions)
    return entry


def _read(segment: Segment, *entries: BatchEntry) -> list[Record]:
    batch, damage = segment.read(entries)
    assert damage is None
    assert batch is not None
    return records_of(batch)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    made = Segment(tmp_path, 42, Disk())
    made.create()
    return made


def test_a_segment_is_named_by_its_base_offset(segment: Segment) -> None:
    assert segment.log_path.name == "00000000000000000042.log"
    assert segment_name(2**63 - 1) == "09223372036854775807"
    assert segment.log_path.exists()


def test_batches_are_read_one_by_one_and_together(segment: Segment) -> None:
    first = _write(segment, [b"a", b"b"])
    second = _write(segment, [b"%d" % number for number in range(300)], first)
    assert [(row.offset, row.value) for row in _read(segment, first)] == [(42, b"a"), (43, b"b")]
    assert [row.offset for row in _read(segment, second)] == list(range(44, 344))
    assert _read(segment, first, second) == _read(segment, first) + _read(segment, second)


def test_a_batch_written_over_one_that_was_not_committed_is_read_whole(segment: Segment) -> None:
    first = _write(segment, [b"a"])
    _write(segment, [b"never committed"] * 200, first)
    second = _write(segment, [b"b"] * 100, first)
    assert [row.value for row in _read(segment, first, second)] == [b"a"] + [b"b"] * 100
    assert segment.log_bytes() > second.position + second.bytes


def test_batches_before_a_damaged_one_are_returned_and_it_is_named(segment: Segment) -> None:
    first = _write(segment, [b"a"])
    second = _write(segment, [b"b"], first)
    third = _write(segment, [b"c"], second)
    with segment.log_path.open("r+b") as file:
        file.seek(second.position + 5)
        file.write(b"!")
    batch, damage = segment.read([first, second, third])
    assert batch is not None
    assert [row.value for row in records_of(batch)] == [b"a"]
    assert damage is not None
    assert damage.entry == second
    assert segment.read([second]) == (None, damage)
    assert [found.entry for found in segment.verify([first, second, third])] == [second]
    assert [row.value for row in _read(segment, third)] == [b"c"]


@pytest.mark.parametrize(("missing", "named"), [(1, "1 byte"), (3, "3 bytes")])
def test_a_truncated_file_is_reported_as_damage(segment: Segment, missing: int, named: str) -> None:
    entry = _write(segment, [b"a"])
    os.truncate(segment.log_path, entry.bytes - missing)
    (damage,) = segment.verify([entry])
    assert damage.reason == f"the file ends {named} early"


def test_a_missing_file_is_damage_of_all_its_batches(tmp_path: Path) -> None:
    made = Segment(tmp_path, 0, Disk())
    made.create()
    first = _write(made, [b"a"])
    second = _write(made, [b"b"], first)
    made.log_path.unlink()
    damages = Segment(tmp_path, 0, Disk()).verify([first, second])
    assert [(damage.entry, damage.reason) for damage in damages] == [
        (first, "the file is missing"),
        (second, "the file is missing"),
    ]


def test_files_are_closed_with_the_last_reference(segment: Segment) -> None:
    _write(segment, [b"a"])
    before = len(os.listdir("/proc/self/fd"))
    other = Segment(segment.directory, segment.base, Disk())
    other.log_bytes()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del other
    assert len(os.listdir("/proc/self/fd")) == before


class SegmentModel(RuleBasedStateMachine):
    """A segment against a list: committed batches stay, whatever is written after them."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.segment = Segment(self.directory, 5, Disk())
        self.segment.create()
        self.live: list[BatchEntry] = []
        self.folded: list[BatchEntry] = []
        self.index_bytes = 0
        self.expected: list[bytes] = []

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @property
    def entries(self) -> list[BatchEntry]:
        return self.folded + self.live

    @rule(values=st.lists(st.binary(max_size=9), min_size=1, max_size=120), commits=st.booleans())
    def write(self, values: list[bytes], commits: bool) -> None:
        last = self.entries[-1] if self.entries else None
        entry = _write(self.segment, values, last)
        if commits:
            self.live.append(entry)
            self.expected += values

    @precondition(lambda self: self.live)
    @rule(count=st.integers(1, 3), commits=st.booleans())
    def fold(self, count: int, commits: bool) -> None:
        index_bytes = self.segment.fold(self.live[:count], self.index_bytes)
        if commits:
            self.index_bytes = index_bytes
            self.folded += self.live[:count]
            del self.live[:count]

    @rule()
    def open_again(self) -> None:
        self.segment = Segment(self.directory, 5, Disk())

    @rule()
    def lose_positions(self) -> None:
        (self.directory / f"{segment_name(5)}.positions").unlink(missing_ok=True)
        self.open_again()

    @invariant()
    def all_is_read(self) -> None:
        if self.entries:
            assert [row.value for row in _read(self.segment, *self.entries)] == self.expected
        assert self.segment.verify(self.entries) == []

    @invariant()
    def every_folded_entry_is_found(self) -> None:
        if not self.index_bytes:
            return
        for entry in self.folded:
            assert self.segment.folded(self.index_bytes, entry.base, 1) == [entry]
        end = self.folded[-1].base + self.folded[-1].records
        assert self.segment.folded(self.index_bytes, end, 1) == []


TestSegmentModel = SegmentModel.TestCase
TestSegmentModel.settings = settings(max_examples=50, stateful_step_count=20)
