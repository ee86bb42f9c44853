"""Files that are rotated, by renaming or by copying: each line once."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from tailrace.source.reader import Until
from tests.unit.readers.file.followed_files import FollowedFiles, append, lines
from tests.unit.readers.file.passed_files import PassedFiles


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_start(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        append(log, lines(3))
        os.rename(log, log.with_suffix(".1"))
        append(log.with_suffix(".1"), lines(4))
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]
        append(log, lines(6))
        assert source.rows() == [1, 2, 3, 4, 5, 6]


def test_a_program_may_keep_writing_to_a_renamed_file_for_a_while(log: Path) -> None:
    with FollowedFiles(str(log)) as source, log.open("a") as writer:
        source.drain()
        os.rename(log, log.with_suffix(".1"))
        log.write_text(lines(4))
        source.step()
        writer.write(lines(3))
        writer.flush()
        assert source.rows() == [1, 2, 3, 4]


def test_rotation_between_two_runs_loses_nothing(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
        source.end()
        append(log, lines(3))
        os.rename(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]


def test_rotation_to_another_name_between_two_runs_loses_nothing(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        source.end()
        append(log, lines(3))
        os.rename(log, log.with_suffix(".old"))
        log.write_text(lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]


def test_names_that_shift_are_not_read_again(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
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


def test_several_rotations_between_two_polls_lose_nothing(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
        append(log, lines(3))
        os.rename(log, f"{log}.2")
        log.write_text(lines(4))
        os.rename(log, f"{log}.1")
        log.write_text(lines(5))
        assert sorted(source.rows()) == [1, 2, 3, 4, 5]


def test_lines_added_to_a_rotated_file_later_are_read(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
        os.rename(log, f"{log}.1")
        log.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        append(Path(f"{log}.1"), lines(4))
        assert source.rows() == [1, 2, 3, 4]
        source.end()
        append(Path(f"{log}.1"), lines(5))
        source.begin()
        assert source.rows() == [1, 2, 3, 4, 5]


def test_a_last_line_without_newline_is_read_when_the_file_is_rotated(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        append(log, '{"n":')
        os.rename(log, log.with_suffix(".1"))
        log.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        assert source.bad()[0][2] == b'{"n":'


def test_a_renamed_file_is_followed_under_its_new_name(log: Path) -> None:
    with FollowedFiles(str(log.parent / "*.jsonl")) as source:
        source.drain()
        other = log.with_name("other.jsonl")
        os.rename(log, other)
        source.drain()
        append(other, lines(3))
        assert source.rows() == [1, 2, 3]
        source.end()
        append(other, lines(4))
        source.begin()
        assert source.rows() == [1, 2, 3, 4]
        log.write_text(lines(5))
        assert source.rows() == [1, 2, 3, 4, 5]


def test_until_now_reads_through_a_rotation(log: Path) -> None:
    with FollowedFiles(str(log) + "*", Until.NOW, namespace="app", format="jsonl") as source:
        source.drain()
        append(log, lines(3))
        os.rename(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3, 4]


def test_rotation_by_copy_and_truncate_repeats_and_loses_nothing(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        for turn in range(3, 6):
            source.drain()
            append(log, lines(10 * turn))
            shutil.copy(log, f"{log}.{turn}")
            source.step()
            with log.open("r+") as file:
                file.truncate()
            source.step()
            append(log, lines(10 * turn + 1))
        assert sorted(source.rows()) == [1, 2, 30, 31, 40, 41, 50, 51]


def test_rotation_by_a_slow_copy_repeats_and_loses_nothing(log: Path) -> None:
    append(log, lines(*range(3, 100)))
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
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


def test_rotation_by_copy_is_recognised_by_the_next_run(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
        source.end()
        append(log, lines(3))
        shutil.copy(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin()
        assert sorted(source.rows()) == [1, 2, 3, 4]


def test_a_rotated_file_that_is_compressed_is_not_read_again(log: Path) -> None:
    with FollowedFiles(str(log) + "*", namespace="app", format="jsonl") as source:
        source.drain()
        rotated = Path(f"{log}.1")
        os.rename(log, rotated)
        log.write_text(lines(3))
        source.drain()
        Path(f"{rotated}.gz").write_bytes(gzip.compress(rotated.read_bytes()))
        source.step()
        rotated.unlink()
        assert source.rows() == [1, 2, 3]
        append(log, lines(4))
        assert source.rows() == [1, 2, 3, 4]


def test_until_now_recognises_rotation_by_copy(log: Path) -> None:
    with FollowedFiles(str(log) + "*", Until.NOW, namespace="app", format="jsonl") as source:
        source.drain()
        append(log, lines(3))
        shutil.copy(log, f"{log}.1")
        log.write_text(lines(4))
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4]


def test_a_task_that_gives_a_file_away_closes_it(log: Path) -> None:
    with PassedFiles(str(log)) as source:
        source.pass_every = 10**6
        source.drain()
        for _ in range(3):
            source.pass_on()
            source.drain()
            descriptors = Path("/proc/self/fd").iterdir()
            assert [os.path.realpath(each) for each in descriptors].count(str(log)) == 1
