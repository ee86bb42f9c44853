"""Files that are cut short, replaced, deleted and made again: each line once."""

from __future__ import annotations

from pathlib import Path

from tailrace.source.split_state import split_states
from tests.unit.readers.following import Followed, append, lines, replace


def test_a_file_cut_short_is_read_again_from_its_start(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        with log.open("r+") as file:
            file.truncate()
        source.settle()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]


def test_a_file_cut_short_and_grown_again_between_two_looks_is_read_again(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        log.write_text(lines(11, 12, 13, 14))
        assert source.rows() == [1, 2, 11, 12, 13, 14]


def test_a_file_cut_short_while_nobody_reads_is_read_again(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        source.end()
        log.write_text(lines(7))
        source.begin()
        assert source.rows() == [1, 2, 7]


def test_a_file_saved_by_an_editor_goes_on_behind_what_was_read(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        replace(log, lines(1, 2, 3))
        assert source.rows() == [1, 2, 3]
        log.write_text(lines(1, 2, 3, 4))
        assert source.rows() == [1, 2, 3, 4]
        source.end()
        replace(log, lines(1, 2, 3, 4, 5))
        source.begin()
        assert source.rows() == [1, 2, 3, 4, 5]


def test_a_file_written_anew_bit_by_bit_is_not_read_before_it_is_known_to_be_another(
    log: Path,
) -> None:
    with Followed(str(log)) as source:
        source.settle()
        with log.open("w") as file:
            source.step()
            file.write(lines(1))
            file.flush()
            source.step()
            file.write(lines(2, 3))
        assert source.rows() == [1, 2, 3]


def test_a_file_replaced_by_other_content_is_read_whole(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        replace(log, lines(8, 9))
        assert source.rows() == [1, 2, 8, 9]


def test_a_file_deleted_and_made_again_with_the_same_inode_is_read_whole(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        source.end()
        inode = log.stat().st_ino
        log.unlink()
        # The system is free to give the number again, and the file systems of most do.
        log.write_text(lines(5, 6, 7))
        if log.stat().st_ino != inode:
            return  # this file system does not
        source.begin()
        assert source.rows() == [1, 2, 5, 6, 7]


def test_a_new_name_with_the_inode_of_a_deleted_file_is_read(log: Path) -> None:
    with Followed(str(log.parent / "*.jsonl")) as source:
        source.settle()
        source.end()
        inode = log.stat().st_ino
        log.unlink()
        other = log.with_name("other.jsonl")
        other.write_text(lines(5, 6, 7))
        if other.stat().st_ino != inode:
            return  # this file system does not
        source.begin()
        assert source.rows() == [1, 2, 5, 6, 7]


def test_a_deleted_file_is_read_to_its_end_and_a_new_one_of_its_name_from_its_start(
    log: Path,
) -> None:
    with Followed(str(log)) as source:
        source.settle()
        append(log, lines(3) + '{"n":4}')
        log.unlink()
        assert source.rows() == [1, 2, 3, 4]
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]
        assert len(split_states(source.hub.backend, "s")) == 2


def test_a_deleted_file_leaves_no_split_behind(log: Path) -> None:
    with Followed(str(log.parent / "*.jsonl")) as source:
        source.settle()
        log.unlink()
        source.settle()
        assert list(split_states(source.hub.backend, "s")) == ["watch"]
