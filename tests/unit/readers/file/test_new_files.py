"""New files, and files that are only copies of files already read."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from tailrace.readers.file.rotation import is_rotated_name
from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import FollowedFiles, append, lines, replace

BOTH = pytest.mark.parametrize("until", list(Until), ids=["now", "stopped"])


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    path = tmp_path / "stock-mon.jsonl"
    path.write_text(lines(1, 2))
    return path


@BOTH
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_a_new_file_with_the_content_of_a_deleted_one_is_read(
    stock: Path, until: Until, seen: bool
) -> None:
    with FollowedFiles(str(stock.parent / "*"), until) as source:
        source.drain()
        stock.unlink()
        if seen:
            source.begin(until)
            source.drain()
        stock.with_name("stock-tue.jsonl").write_text(lines(1, 2, 3))
        source.begin(until)
        assert source.rows() == [1, 2, 1, 2, 3]
        assert source.messages()[-1].key == "stock-tue"


def test_a_new_file_like_one_deleted_in_the_same_run_is_read(stock: Path) -> None:
    with FollowedFiles(str(stock.parent / "*")) as source:
        source.drain()
        shutil.copy(stock, stock.with_name("stock-tue.jsonl"))
        stock.unlink()
        assert source.rows() == [1, 2, 1, 2]


@BOTH
@pytest.mark.parametrize("text", [lines(1, 2), lines(1, 2, 3)], ids=["equal", "longer"])
def test_a_file_created_again_after_its_deletion_was_seen_is_read_whole(
    stock: Path, until: Until, text: str
) -> None:
    with FollowedFiles(str(stock), until) as source:
        source.drain()
        stock.unlink()
        source.begin(until)
        source.step()
        source.step()
        stock.write_text(text)
        source.begin(until)
        assert source.rows() == [1, 2, *range(1, text.count("\n") + 1)]


@BOTH
@pytest.mark.parametrize("same_inode", [True, False])
def test_a_file_deleted_and_created_again_between_two_runs_with_the_same_content_is_read_whole(
    stock: Path, until: Until, same_inode: bool
) -> None:
    with FollowedFiles(str(stock), until) as source:
        source.drain()
        source.end()
        with stock.open() if not same_inode else open(os.devnull):
            stock.unlink()
            stock.write_text(lines(1, 2))
        source.begin(until)
        assert source.rows() == [1, 2, 1, 2]


def test_a_file_deleted_and_created_again_between_two_polls_with_the_same_content_is_read_whole(
    stock: Path,
) -> None:
    with FollowedFiles(str(stock)) as source:
        source.drain()
        stock.unlink()
        stock.write_text(lines(1, 2))
        assert source.rows() == [1, 2, 1, 2]


def test_a_file_that_an_editor_saved_unchanged_is_not_read_again(stock: Path) -> None:
    with FollowedFiles(str(stock)) as source:
        source.drain()
        other = stock.with_name(".new")
        other.write_text(lines(1, 2))
        os.utime(other, ns=(0, 0))
        os.replace(other, stock)
        assert source.rows() == [1, 2]
        append(stock, lines(3))
        assert source.rows() == [1, 2, 3]


def test_a_file_rewritten_in_place_with_the_same_content_is_not_read_again(stock: Path) -> None:
    with FollowedFiles(str(stock)) as source:
        source.drain()
        source.end()
        stock.write_text(lines(1, 2))
        os.utime(stock)
        source.begin()
        assert source.rows() == [1, 2]


def test_a_deleted_original_is_recognised_in_its_compressed_copy_by_the_next_run(
    tmp_path: Path,
) -> None:
    log = tmp_path / "users.jsonl"
    log.write_text(lines(1, 2))
    with FollowedFiles(f"{log}*", Until.NOW, namespace="users", format="jsonl") as source:
        source.drain()
        Path(f"{log}.1.gz").write_bytes(gzip.compress(lines(1, 2, 3).encode()))
        replace(log, lines(4))
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "path",
    ["in/a.jsonl.1", "in/a.jsonl-20260131", "in/a.jsonl.1.gz", "in/a.jsonl.gz", "in/a.jsonl.old",
     "in/a.jsonl.2026-01-31_23-59-59", "in/a.jsonl-2026013123.gz"],
)  # fmt: skip
def test_a_name_with_a_rotation_suffix_is_a_rotated_name(path: str) -> None:
    assert is_rotated_name(path, "in/a.jsonl")


@pytest.mark.parametrize(
    "path",
    ["in/a.jsonl", "in/b.jsonl", "in/b.jsonl.1", "in/a.jsonl.new", "a.jsonl.1", "in/a.jsonlx.1",
     "in/a-20260131.jsonl", "in/a.json"],
)  # fmt: skip
def test_any_other_name_is_not_a_rotated_name(path: str) -> None:
    assert not is_rotated_name(path, "in/a.jsonl")


def test_only_a_compressed_name_is_a_rotation_of_a_rotated_name() -> None:
    assert is_rotated_name("a.jsonl.2.gz", "a.jsonl.1")
    assert not is_rotated_name("a.jsonl.2", "a.jsonl.1")


def test_rotations_at_every_poll_to_names_outside_the_glob_lose_nothing(
    tmp_path: Path,
) -> None:
    log = tmp_path / "app.jsonl"
    log.write_text(lines(0))
    with FollowedFiles(str(log)) as source:
        source.drain()
        for turn in range(1, 8):
            os.rename(log, tmp_path / "away")
            log.write_text(lines(turn))
            source.poll()
        os.rename(log, tmp_path / "away")
        assert source.rows() == list(range(8))


def test_files_deleted_at_every_poll_lose_nothing_and_are_closed(tmp_path: Path) -> None:
    log = tmp_path / "app.jsonl"
    log.write_text(lines(0))
    with FollowedFiles(str(log)) as source:
        source.drain()
        before = len(os.listdir("/proc/self/fd"))
        for turn in range(1, 8):
            replace(log, lines(turn))
            source.poll()
        assert source.rows() == list(range(8))
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("steps", range(5))
def test_names_that_shift_before_the_first_poll_are_not_read_again(
    tmp_path: Path, steps: int
) -> None:
    log = tmp_path / "app.jsonl"
    log.write_text(lines(3, 4))
    Path(f"{log}.1").write_text(lines(1, 2))
    # The files of a poll are renamed before the reader opens them.
    with FollowedFiles(f"{log}*", poll="100ms", namespace="app", format="jsonl") as source:
        for _ in range(steps):
            source.step()
        os.rename(f"{log}.1", f"{log}.2")
        os.rename(log, f"{log}.1")
        log.write_text(lines(5))
        source.drain()
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4, 5]


def test_a_truncated_compressed_file_logs_a_warning_and_is_read_further_when_it_is_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "app.jsonl.gz"
    data = gzip.compress(lines(*range(5000)).encode())
    path.write_bytes(data[:-2000])
    with FollowedFiles(str(path), Until.NOW) as source:
        assert 0 < len(source.rows()) < 5000
        assert f"{path} is incomplete" in caplog.text
        caplog.clear()
        with path.open("ab") as file:
            file.write(data[-2000:])
        source.begin(Until.NOW)
        assert source.rows() == list(range(5000))
        assert (source.bad(), caplog.text) == ([], "")
