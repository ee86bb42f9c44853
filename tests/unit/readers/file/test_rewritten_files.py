"""Files that are truncated, replaced, deleted and created again: each line once."""

from __future__ import annotations

from pathlib import Path

from tailrace.source.split_state import read_splits
from tests.unit.readers.file.followed_files import FollowedFiles, append, lines, replace


def test_a_truncated_file_is_read_again_from_its_start(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        with log.open("r+") as file:
            file.truncate()
        source.drain()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]


def test_a_file_truncated_and_grown_again_between_two_polls_is_read_again(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        log.write_text(lines(11, 12, 13, 14))
        assert source.rows() == [1, 2, 11, 12, 13, 14]


def test_a_file_truncated_between_two_runs_is_read_again(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        source.end()
        log.write_text(lines(7))
        source.begin()
        assert source.rows() == [1, 2, 7]


def test_a_file_saved_by_an_editor_is_read_on_from_its_position(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        replace(log, lines(1, 2, 3))
        assert source.rows() == [1, 2, 3]
        log.write_text(lines(1, 2, 3, 4))
        assert source.rows() == [1, 2, 3, 4]
        source.end()
        replace(log, lines(1, 2, 3, 4, 5))
        source.begin()
        assert source.rows() == [1, 2, 3, 4, 5]


def test_a_file_rewritten_bit_by_bit_is_not_read_before_it_differs(
    log: Path,
) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        with log.open("w") as file:
            source.step()
            file.write(lines(1))
            file.flush()
            source.step()
            file.write(lines(2, 3))
        assert source.rows() == [1, 2, 3]


def test_a_file_replaced_by_other_content_is_read_whole(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        replace(log, lines(8, 9))
        assert source.rows() == [1, 2, 8, 9]


def test_a_file_deleted_and_created_again_with_the_same_inode_is_read_whole(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        source.end()
        inode = log.stat().st_ino
        log.unlink()
        # Most file systems reuse the inode of a deleted file.
        log.write_text(lines(5, 6, 7))
        if log.stat().st_ino != inode:
            return  # This file system does not reuse it.
        source.begin()
        assert source.rows() == [1, 2, 5, 6, 7]


def test_a_new_name_with_the_inode_of_a_deleted_file_is_read(log: Path) -> None:
    with FollowedFiles(str(log.parent / "*.jsonl")) as source:
        source.drain()
        source.end()
        inode = log.stat().st_ino
        log.unlink()
        other = log.with_name("other.jsonl")
        other.write_text(lines(5, 6, 7))
        if other.stat().st_ino != inode:
            return  # This file system does not reuse it.
        source.begin()
        assert source.rows() == [1, 2, 5, 6, 7]


def test_a_deleted_file_is_read_to_its_end_and_a_new_one_of_its_name_from_its_start(
    log: Path,
) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        append(log, lines(3) + '{"n":4}')
        log.unlink()
        assert source.rows() == [1, 2, 3, 4]
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]
        source.begin()  # a run looks for unneeded splits at its start
        source.drain()
        copy, follow, watch = read_splits(source.hub.backend, "s").states
        assert (copy, follow.partition(":")[0], watch) == ("copy:app", "follow", "watch")


def test_a_deleted_file_leaves_no_split_behind(log: Path) -> None:
    with FollowedFiles(str(log.parent / "*.jsonl")) as source:
        source.drain()
        log.unlink()
        source.drain()
        source.begin()  # a run looks for unneeded splits at its start
        source.drain()
        assert list(read_splits(source.hub.backend, "s").states) == ["copy:app", "watch"]
