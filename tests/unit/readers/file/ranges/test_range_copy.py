"""Ranges of a file: together they are the undivided copy, in any order and with any restarts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.readers.file.file_position import FilePosition, Fingerprint
from tailrace.readers.file.formats import lines as lines_module
from tailrace.readers.file.formats import parquet as parquet_module
from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import append, lines
from tests.unit.readers.file.read_splits import ReadSplits

FOLLOW = "follow:1:{}"
ROWS = st.integers(0, 40).map(lambda length: b'{"n":"%s"}' % (b"y" * length))
LINES = st.one_of(
    ROWS,
    ROWS,
    st.sampled_from([b"", b" ", b"bad", b'{"n":', b'{"n":"\xff"}', b"{}{}", '{"n":"é"}'.encode()]),
)


class Content(NamedTuple):
    """The content of a file, and the options by which it is read."""

    data: bytes
    range_bytes: int
    chunk_bytes: int
    options: dict[str, Any]


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """Draw lines of all kinds, with or without a newline at the end."""
    ends = draw(st.sampled_from([b"\n", b"\r\n"]))
    data = b"".join(line + ends for line in draw(st.lists(LINES, min_size=1, max_size=25)))
    data = (
        draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + data + draw(st.sampled_from([b"", b"{}"]))
    )
    data = data[: -draw(st.integers(0, 3)) or None]
    options = {
        "line_bytes_max": draw(st.sampled_from([1 << 20, 30, 10])),
        "encoding": draw(st.sampled_from(["utf-8", "latin-1"])),
        "identity": draw(st.sampled_from([(), ("n",)])),
    }
    chunk_bytes = draw(st.sampled_from([1 << 20, 64, 16]))
    return Content(data, draw(st.integers(1, 90)), chunk_bytes, options)


def _valid_tail(position: FilePosition, data: bytes) -> bool:
    tail, end = position.tail, position.offset
    return tail == Fingerprint.of(data[end - tail.length : end])


@given(contents(), st.sampled_from(Until), st.randoms(use_true_random=False))
def test_ranges_in_any_order_make_the_undivided_copy(
    content: Content, until: Until, chance: Any
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.jsonl"
        path.write_bytes(content.data)
        with patch.object(lines_module, "CHUNK_BYTES", content.chunk_bytes):
            whole = ReadSplits(path, until, **content.options)
            whole.read_copies()
            divided = ReadSplits(path, until, range_bytes=content.range_bytes, **content.options)
            ranges = list(divided.ranges)
            chance.shuffle(ranges)
            while ranges:  # one batch of any range, and then another session
                split = chance.choice(ranges)
                next(divided.steps(split))
                if split in divided.finished:
                    ranges.remove(split)
            divided.read_copies()
    assert len(divided.ranges) == -(-len(content.data) // content.range_bytes) or not divided.ranges
    assert sorted(divided.values) == sorted(whole.values)
    assert sorted((bad.error, bad.value) for bad in divided.bad) == sorted(
        (bad.error, bad.value) for bad in whole.bad
    )
    assert divided.completed == whole.completed == [b'{"rows":%d}' % len(whole.values)]
    expected = whole.follow_position(FOLLOW.format(path))
    found = divided.follow_position(FOLLOW.format(path))
    assert msgspec.structs.replace(found, tail=expected.tail) == expected
    assert _valid_tail(found, content.data)
    if content.chunk_bytes == 1 << 20:
        assert found.tail.length >= expected.tail.length


@given(contents())
def test_a_bad_line_of_a_range_is_named_by_its_first_byte(content: Content) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.jsonl"
        path.write_bytes(content.data)
        with patch.object(lines_module, "CHUNK_BYTES", content.chunk_bytes):
            divided = ReadSplits(path, range_bytes=content.range_bytes, **content.options)
            divided.read(*divided.ranges)
    for bad in divided.bad:
        name, _, place = bad.where.rpartition(":byte ")
        offset = int(place)
        assert name == str(path)
        assert content.data[offset:].startswith(bad.value)
        assert offset == 0 or content.data[offset - 1 : offset] == b"\n" or offset == 3


def test_a_range_continues_at_each_stored_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 32)
    path = tmp_path / "a.jsonl"
    path.write_text(lines(*range(60)))
    whole = ReadSplits(path)
    whole.read_copies()
    source = ReadSplits(path, range_bytes=200)
    batches = 0
    for split in source.ranges:
        while split not in source.finished:
            next(source.steps(split))
            batches += 1
    assert batches > 3 * len(source.ranges)
    assert source.rows() == list(range(60))
    source.read_copies()
    assert source.follow_position(FOLLOW.format(path)).checksum == (
        whole.follow_position(FOLLOW.format(path)).checksum
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.jsonl"
    path.write_text(lines(*range(100, 130)))  # of 10 bytes each
    return path


@pytest.fixture
def source(log: Path) -> ReadSplits:
    """A source of three ranges, with ten rows each."""
    return ReadSplits(log, range_bytes=100)


def test_rows_that_are_appended_belong_to_no_range(log: Path, source: ReadSplits) -> None:
    append(log, lines(1))
    source.read_copies()
    assert source.rows() == list(range(100, 130))
    assert source.follow_position(FOLLOW.format(log)).offset == 300


def test_the_rest_of_the_last_line_belongs_to_no_range(log: Path) -> None:
    append(log, '{"n":1')
    source = ReadSplits(log, range_bytes=100)
    append(log, "2}\n")
    source.read_copies()
    assert source.rows() == list(range(100, 130))
    assert source.follow_position(FOLLOW.format(log)).offset == 300


def test_ranges_are_read_after_the_file_was_renamed(log: Path, source: ReadSplits) -> None:
    first, second, third = source.ranges
    source.read(first)
    os.rename(log, log.with_suffix(".1"))
    log.write_text(lines(1))
    source.read(second)
    os.rename(log.with_suffix(".1"), log.with_suffix(".2"))
    source.read(third)
    assert source.rows() == list(range(100, 130))


def test_a_range_is_read_to_its_end_after_its_file_was_deleted(
    log: Path, source: ReadSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 32)
    steps = source.steps(source.ranges[1])
    next(steps)
    log.unlink()
    for _ in steps:
        pass
    assert source.rows() == list(range(110, 120))


def test_ranges_of_a_deleted_file_have_no_rows(log: Path, source: ReadSplits) -> None:
    first, second, third = source.ranges
    source.read(first)
    log.unlink()
    source.read(second, third, "copy:app")
    assert source.rows() == list(range(100, 110))
    assert source.completed == [b'{"rows":10}']
    assert source.follow_position(FOLLOW.format(log)).offset == 100


def test_another_file_with_the_inode_of_a_deleted_one_is_not_copied(
    log: Path, source: ReadSplits
) -> None:
    # A file that is rewritten in place keeps its inode too.
    log.write_text(lines(*range(500, 530)))
    source.read_copies()
    assert source.rows() == []
    assert source.completed == [b'{"rows":0}']
    assert source.follow_position(FOLLOW.format(log)) == FilePosition(
        str(log), log.stat().st_dev, log.stat().st_ino
    )


def test_a_range_ends_where_its_file_was_rewritten(
    log: Path, source: ReadSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 32)
    first, second, third = source.ranges
    source.read(third)
    steps = source.steps(first)
    next(steps)
    log.write_text(lines(*range(500, 530)))
    for _ in steps:
        pass
    source.read(second, "copy:app")
    assert source.rows() == [*range(120, 130), 100, 101, 102]
    assert source.follow_position(FOLLOW.format(log)).offset == 30


def test_a_file_that_was_cut_is_followed_from_the_end_of_its_first_ranges(
    log: Path,
) -> None:
    append(log, lines(*range(130, 190)))
    source = ReadSplits(log, range_bytes=300)
    first, second, third = source.ranges
    source.read(third)
    os.truncate(log, 455)
    source.read(first, second, "copy:app")
    assert source.rows() == [*range(160, 190), *range(100, 145)]
    assert source.follow_position(FOLLOW.format(log)).offset == 450


def test_a_line_over_several_ranges_belongs_to_the_first_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines(1, "y" * 350, 2))
    source = ReadSplits(path, range_bytes=100, line_bytes_max=200)
    source.read_copies()
    assert source.rows() == [1, 2]
    assert [(bad.where, len(bad.value)) for bad in source.bad] == [(f"{path}:byte 8", 358)]


def test_many_ranges_share_a_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines(*range(200)))
    source = ReadSplits(path, range_bytes=30)
    with source.reader.open(Until.NOW) as session:
        held = session._state.held_files
        monkeypatch.setattr(held, "_holders_max", 4)
        read = [session.read(source.splits[each], None, None, {}) for each in source.ranges]
        for _ in range(2):
            for batches in read:
                next(batches)
                assert len(held._holders) <= 4


def _parquet(path: Path, *numbers: int) -> None:
    pq.write_table(pa.table({"n": list(numbers)}), path, row_group_size=10)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    _parquet(path, *range(60))
    return path


def test_row_groups_are_copied_once_from_any_position(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_module, "_ROWS", 3)
    whole = ReadSplits(table)
    whole.read_copies()
    size = pq.ParquetFile(table).metadata.row_group(0).total_byte_size
    source = ReadSplits(table, range_bytes=2 * size)
    assert source.ranges == [f"range:{start}:{table}" for start in (0, 20, 40)]
    assert [source.splits[each].rows_expected for each in source.ranges] == [20, 20, 20]
    for split in reversed(source.ranges):
        while split not in source.finished:
            next(source.steps(split))
    source.read_copies()
    assert sorted(source.rows()) == whole.rows() == list(range(60))
    assert source.completed == [b'{"rows":60}']
    follow = FOLLOW.format(table)
    assert source.follow_position(follow) == whole.follow_position(follow)


def test_ranges_of_a_rewritten_parquet_file_end(table: Path) -> None:
    source = ReadSplits(table, range_bytes=1)
    source.read(*source.ranges[:2])
    _parquet(table, *range(500, 570))
    source.read_copies()
    assert source.rows() == list(range(20))
    assert source.bad == []
    position = source.follow_position(FOLLOW.format(table))
    assert (position.offset, position.given_up) == (20, False)
    assert position.size != table.stat().st_size


def test_a_damaged_row_group_is_bad_once_and_others_are_copied(table: Path) -> None:
    before = table.stat()
    group = pq.ParquetFile(table).metadata.row_group(1).column(0)
    with table.open("r+b") as file:
        file.seek(group.dictionary_page_offset or group.data_page_offset)
        file.write(b"\xff" * 20)
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    source = ReadSplits(table, range_bytes=1)
    source.read_copies()
    assert source.rows() == [*range(10), *range(20, 60)]
    [bad] = source.bad
    assert bad.where == f"{table}:11"
    position = source.follow_position(FOLLOW.format(table))
    assert (position.offset, position.given_up) == (10, True)
