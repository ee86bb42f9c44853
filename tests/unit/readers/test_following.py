"""Files that grow, are rotated, cut short, replaced, deleted and made again: each line once."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
from pathlib import Path

import pytest

from tailrace.message import Mode
from tailrace.source.reader import Until
from tailrace.source.split_state import split_states
from tests.unit.readers.following import Followed, append, lines, replace


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.jsonl"
    path.write_text(lines(1, 2))
    return path


def test_what_is_there_is_copied_then_complete_then_followed(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]
        messages = source.messages()
        modes = [message.mode for message in messages]
        assert modes == [Mode.COPY, Mode.COPY, Mode.COMPLETE, Mode.SYNC]
        assert messages[2].data == b'{"rows":2}'
        assert {message.key for message in messages} == {"app"}


def test_a_line_is_taken_when_it_is_whole(log: Path) -> None:
    with Followed(str(log)) as source:
        append(log, '{"n":')
        assert source.rows() == [1, 2]
        append(log, "3")
        assert source.rows() == [1, 2]
        append(log, '0}\n{"n":4}')
        assert source.rows() == [1, 2, 30, 4]
        append(log, "\n" + lines(5) + "oops\n")
        assert source.rows() == [1, 2, 30, 4, 5]
        assert [where for where, _, _ in source.bad()] == [f"{log}:6"]


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_start(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        append(log, lines(3))
        os.rename(log, log.with_suffix(".1"))
        append(log.with_suffix(".1"), lines(4))
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]
        append(log, lines(6))
        assert source.rows() == [1, 2, 3, 4, 5, 6]


def test_a_writer_may_go_on_in_a_renamed_file_for_a_while(log: Path) -> None:
    with Followed(str(log)) as source, log.open("a") as writer:
        source.settle()
        os.rename(log, log.with_suffix(".1"))
        log.write_text(lines(4))
        source.step()
        writer.write(lines(3))
        writer.flush()
        assert source.rows() == [1, 2, 3, 4]


def test_rotation_while_nobody_reads_loses_nothing(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        source.end()
        append(log, lines(3))
        os.rename(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]


def test_rotation_to_another_name_while_nobody_reads_loses_nothing(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        source.end()
        append(log, lines(3))
        os.rename(log, log.with_suffix(".old"))
        log.write_text(lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]


def test_names_that_move_on_are_not_read_again(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        expected = [1, 2]
        for turn in range(3, 8):
            assert source.rows() == expected
            for number in range(3, 0, -1):
                if os.path.exists(f"{log}.{number}"):
                    os.rename(f"{log}.{number}", f"{log}.{number + 1}")
            append(log, lines(10 * turn))
            os.rename(log, f"{log}.1")
            log.write_text(lines(10 * turn + 1))
            expected += [10 * turn, 10 * turn + 1]
        assert source.rows() == expected
        source.end()
        source.begin()
        assert source.rows() == expected


def test_several_rotations_between_two_looks_lose_nothing(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        append(log, lines(3))
        os.rename(log, f"{log}.2")
        log.write_text(lines(4))
        os.rename(log, f"{log}.1")
        log.write_text(lines(5))
        assert sorted(source.rows()) == [1, 2, 3, 4, 5]


def test_lines_added_to_a_rotated_file_later_are_read(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        os.rename(log, f"{log}.1")
        log.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        append(Path(f"{log}.1"), lines(4))
        assert source.rows() == [1, 2, 3, 4]
        source.end()
        append(Path(f"{log}.1"), lines(5))
        source.begin()
        assert source.rows() == [1, 2, 3, 4, 5]


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


def test_a_last_line_without_newline_is_taken_when_the_file_is_rotated_away(log: Path) -> None:
    with Followed(str(log)) as source:
        source.settle()
        append(log, '{"n":')
        os.rename(log, log.with_suffix(".1"))
        log.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        assert source.bad()[0][2] == b'{"n":'


def test_a_renamed_file_is_followed_under_its_new_name(log: Path) -> None:
    with Followed(str(log.parent / "*.jsonl")) as source:
        source.settle()
        other = log.with_name("other.jsonl")
        os.rename(log, other)
        source.settle()
        append(other, lines(3))
        assert source.rows() == [1, 2, 3]
        source.end()
        append(other, lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]


def test_new_files_are_read_from_their_first_byte_in_sync_mode(log: Path) -> None:
    with Followed(str(log.parent / "**" / "*.jsonl")) as source:
        source.settle()
        deep = log.parent / "a" / "b" / "new.jsonl"
        deep.parent.mkdir(parents=True)
        deep.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        message = source.messages()[-1]
        assert (message.key, message.mode) == ("new", Mode.SYNC)


def test_rows_of_a_new_file_come_behind_the_copy_of_their_namespace(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text(lines(number))
    with Followed(str(tmp_path / "*.jsonl"), namespace="all") as source:
        (tmp_path / "0new.jsonl").write_text(lines(5))
        assert source.rows() == [0, 1, 2, 3, 4, 5]
        modes = [message.mode for message in source.messages()]
        assert modes == [Mode.COPY] * 5 + [Mode.COMPLETE, Mode.SYNC]


def test_a_copy_takes_exactly_what_was_there_at_its_beginning(log: Path) -> None:
    with Followed(str(log)) as source:
        source.step()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]
        modes = [message.mode for message in source.messages()]
        assert modes == [Mode.COPY, Mode.COPY, Mode.COMPLETE, Mode.SYNC]


def test_until_now_reads_only_what_was_there_when_it_began(log: Path) -> None:
    other = log.with_name("other.jsonl")
    with Followed(str(log.parent / "*.jsonl"), Until.NOW) as source:
        append(log, lines(3))
        other.write_text(lines(4))
        assert source.rows() == [1, 2]
        source.begin(Until.NOW)
        append(log, lines(5))
        assert sorted(source.rows()) == [1, 2, 3, 4]
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4, 5]


def test_until_now_goes_through_a_rotation(log: Path) -> None:
    with Followed(str(log) + "*", Until.NOW, namespace="app", format="jsonl") as source:
        source.settle()
        append(log, lines(3))
        os.rename(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3, 4]


def test_until_now_ends_although_lines_are_cut_in_the_middle(log: Path) -> None:
    append(log, '{"n":')
    with Followed(str(log), Until.NOW) as source:
        append(log, "3}\n")
        assert source.rows() == [1, 2]
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3]
        assert source.bad() == []


def test_the_name_of_a_link_that_is_set_anew_is_followed(log: Path) -> None:
    link = log.with_name("current.jsonl")
    link.symlink_to(log)
    with Followed(str(link)) as source:
        assert source.rows() == [1, 2]
        next_log = log.with_name("next.jsonl")
        next_log.write_text(lines(3))
        link.unlink()
        link.symlink_to(next_log)
        assert source.rows() == [1, 2, 3]


def test_two_names_of_a_file_are_one_file(log: Path) -> None:
    os.link(log, log.with_name("second.jsonl"))
    with Followed(str(log.parent / "*.jsonl")) as source:
        assert source.rows() == [1, 2]


def test_a_copy_of_a_file_is_a_file_of_its_own(log: Path) -> None:
    with Followed(str(log.parent / "*.jsonl")) as source:
        source.settle()
        shutil.copy(log, log.with_name("copy.jsonl"))
        assert source.rows() == [1, 2, 1, 2]


def test_a_compressed_file_is_followed_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl.gz"
    path.write_bytes(gzip.compress(lines(1, 2).encode()))
    whole = gzip.compress(lines(*range(3, 500)).encode())
    with Followed(str(path)) as source:
        assert source.rows() == [1, 2]
        for start in range(0, len(whole), 100):
            with path.open("ab") as file:
                file.write(whole[start : start + 100])
            source.settle()
            if start % 300 == 0:
                source.begin()
        assert source.rows() == list(range(1, 500))
        assert source.bad() == []


def test_a_damaged_compressed_file_is_a_dead_letter_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"this is not gzip at all")
    (tmp_path / "b.jsonl").write_text(lines(1))
    with Followed(str(tmp_path / "*")) as source:
        assert source.rows() == [1]
        [(where, error, _)] = source.bad()
        assert where == f"{tmp_path}/a.jsonl.gz:1"
        assert "not gzip" in error


def test_a_new_file_of_unknown_format_is_a_dead_letter(log: Path) -> None:
    with Followed(str(log.parent / "*")) as source:
        source.settle()
        log.with_name("notes.txt").write_text("hello")
        assert [where for where, _, _ in source.bad()] == [str(log.with_name("notes.txt"))]
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]


def test_more_files_than_descriptors_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_text(lines(number))
    # A quarter of them is held open.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with Followed(str(tmp_path / "*.jsonl"), namespace="all") as source:
        source.settle()
        before = len(os.listdir("/proc/self/fd"))
        for number, path in enumerate(paths):
            append(path, lines(number + 100))
        assert sorted(source.rows()) == [*range(40), *range(100, 140)]
        assert len(os.listdir("/proc/self/fd")) <= before + 16


def test_rotation_by_copying_and_cutting_short_repeats_and_loses_nothing(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        for turn in range(3, 6):
            source.settle()
            append(log, lines(10 * turn))
            shutil.copy(log, f"{log}.{turn}")
            source.step()
            with log.open("r+") as file:
                file.truncate()
            source.step()
            append(log, lines(10 * turn + 1))
        assert sorted(source.rows()) == [1, 2, 30, 31, 40, 41, 50, 51]


def test_rotation_by_copying_slowly_repeats_and_loses_nothing(log: Path) -> None:
    append(log, lines(*range(3, 100)))
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        append(log, lines(100))
        data = log.read_text()
        for start in range(0, len(data), 200):
            append(Path(f"{log}.1"), data[start : start + 200])
            source.step()
            source.step()
        with log.open("r+") as file:
            file.truncate()
        append(log, lines(101))
        assert sorted(source.rows()) == list(range(1, 102))


def test_rotation_by_copying_is_recognised_by_the_next_run(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        source.end()
        append(log, lines(3))
        shutil.copy(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin()
        assert sorted(source.rows()) == [1, 2, 3, 4]


def test_a_rotated_file_that_is_compressed_is_not_read_again(log: Path) -> None:
    with Followed(str(log) + "*", namespace="app", format="jsonl") as source:
        source.settle()
        rotated = Path(f"{log}.1")
        os.rename(log, rotated)
        log.write_text(lines(3))
        source.settle()
        Path(f"{rotated}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
        source.step()
        rotated.unlink()
        assert source.rows() == [1, 2, 3]
        append(log, lines(4))
        assert source.rows() == [1, 2, 3, 4]


def test_until_now_recognises_rotation_by_copying(log: Path) -> None:
    with Followed(str(log) + "*", Until.NOW, namespace="app", format="jsonl") as source:
        source.settle()
        append(log, lines(3))
        shutil.copy(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4]
