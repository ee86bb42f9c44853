"""Files that are copied in ranges and then followed: each line once, whatever happens meanwhile."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.message import Mode
from tailrace.readers.file.formats import lines as lines_module
from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import FollowedFiles, append, lines, replace

RANGE_BYTES = 300


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches for each range."""
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 64)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.jsonl"
    path.write_text(lines(*range(100, 190)))  # three ranges of thirty rows
    return path


def _following(path: Path | str, until: Until = Until.STOPPED) -> FollowedFiles:
    return FollowedFiles(str(path), until, range_bytes=RANGE_BYTES, namespace="app", format="jsonl")


def test_ranges_are_copied_then_completed_then_followed(log: Path) -> None:
    (log.parent / "small.jsonl").write_text(lines(1, 2))
    with _following(log.parent / "*") as source:
        append(log, lines(190))
        append(log.parent / "small.jsonl", lines(3))
        (log.parent / "new.jsonl").write_text(lines(4))
        found = source.rows()
        assert sorted(found[:92]) == [1, 2, *range(100, 190)]
        assert sorted(found[92:]) == [3, 4, 190]
        messages = source.messages()
        modes = [message.mode for message in messages]
        assert modes == [Mode.COPY] * 92 + [Mode.COMPLETE] + [Mode.SYNC] * 3
        assert messages[92].data == b'{"rows":92}'


def test_rows_of_a_range_are_in_order(log: Path) -> None:
    with _following(log) as source:
        found = source.rows()
        for first in (100, 130, 160):
            assert [n for n in found if first <= n < first + 30] == list(range(first, first + 30))


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_a_new_run_continues_in_the_middle_of_ranges(log: Path, steps: int) -> None:
    with _following(log, Until.NOW) as source:
        for _ in range(steps):
            source.step()
        append(log, lines(190))
        source.begin(Until.NOW)
        source.drain()
        source.begin(Until.NOW)
        assert sorted(source.rows()) == list(range(100, 191))
        completed = [each.data for each in source.messages() if each.mode is Mode.COMPLETE]
        assert completed == [b'{"rows":90}']


@pytest.mark.parametrize("steps", [0, 1, 5, 12, 30])
def test_a_file_that_is_renamed_while_its_ranges_are_read_is_read_once(
    log: Path, steps: int
) -> None:
    with _following(f"{log}*") as source:
        for _ in range(steps):
            source.step()
        os.rename(log, f"{log}.1")
        append(Path(f"{log}.1"), lines(190))
        log.write_text(lines(191))
        assert sorted(source.rows()) == list(range(100, 192))
        append(log, lines(192))
        assert sorted(source.rows()) == list(range(100, 193))


@pytest.mark.parametrize("steps", [1, 5, 12, 30])
def test_a_file_that_is_renamed_to_a_name_outside_the_glob_is_read_once(
    log: Path, steps: int
) -> None:
    with _following(log) as source:
        for _ in range(steps):
            source.step()
        os.rename(log, log.with_suffix(".old"))
        log.write_text(lines(190))
        assert sorted(source.rows()) == list(range(100, 191))


@pytest.mark.parametrize("runs", [1, 2])
def test_a_file_that_is_compressed_while_its_ranges_are_read_is_not_read_twice(
    log: Path, runs: int
) -> None:
    with _following(f"{log}*") as source:
        for run in range(1, runs + 1):
            source.begin()
            while len(source.messages()) < 20 * run:
                source.step()
        Path(f"{log}.gz").write_bytes(gzip.compress(log.read_bytes()))
        for _ in range(3):
            source.step()
        log.unlink()
        assert sorted(source.rows()) == list(range(100, 190))


def test_a_file_that_is_compressed_while_its_ranges_wait_for_a_new_run_loses_no_row(
    log: Path,
) -> None:
    with _following(f"{log}*") as source, log.open():  # its inode is not used again
        while len(source.messages()) < 20:
            source.step()
        read = source.messages()
        Path(f"{log}.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
        source.begin()
        found = source.rows()
        assert set(found) == set(range(100, 190))
        assert len(found) <= 90 + len(read)


def test_a_file_that_is_copied_and_truncated_while_its_ranges_wait_is_not_read_twice(
    log: Path,
) -> None:
    with _following(f"{log}*") as source:
        while len(source.messages()) < 20:
            source.step()
        shutil.copy(log, f"{log}.1")
        for _ in range(3):
            source.step()
        os.truncate(log, 0)
        append(log, lines(190))
        found = source.rows()
        assert sorted(set(found)) == list(range(100, 191))
        append(log, lines(191))
        assert source.rows() == [*found, 191]


def test_a_file_that_is_rewritten_while_its_ranges_are_read_is_read_from_its_start(
    log: Path,
) -> None:
    with _following(log) as source:
        while len(source.messages()) < 20:
            source.step()
        log.write_text(lines(*range(500, 590)))
        found = source.rows()
        assert found[-90:] == list(range(500, 590))
        assert all(n < 200 for n in found[:-90])


def test_a_saved_file_loses_no_row(log: Path) -> None:
    with _following(log) as source:
        while len(source.messages()) < 20:
            source.step()
        replace(log, log.read_text() + lines(190))
        assert sorted(set(source.rows())) == list(range(100, 191))


def test_a_file_that_is_deleted_while_its_ranges_wait_ends(log: Path) -> None:
    other = log.with_name("other.jsonl")
    other.write_text(lines(1))
    with _following(log.parent / "*.jsonl") as source:
        source.step()
        log.unlink()
        source.drain()
        log.write_text(lines(2, 3))
        assert sorted(source.rows())[:3] == [1, 2, 3]


def test_row_groups_are_copied_then_a_rewritten_table_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": range(50)}), path, row_group_size=10)
    with FollowedFiles(str(path), range_bytes=1) as source:
        assert sorted(source.rows()) == list(range(50))
        assert [each.data for each in source.messages() if each.mode is Mode.COMPLETE] == [
            b'{"rows":50}'
        ]
        source.begin(Until.NOW)
        assert len(source.rows()) == 50
        source.begin()
        source.drain()
        other = tmp_path / "other"
        pq.write_table(pa.table({"n": [50, 51]}), other)
        other.replace(path)
        assert sorted(source.rows()) == list(range(52))
