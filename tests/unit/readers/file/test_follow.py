"""Files that grow, appear, and have several names: each line once."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
from pathlib import Path

import pytest

from tailrace.message import Mode
from tailrace.source.reader import Until
from tailrace.source.split_state import read_splits
from tests.unit.readers.file.followed_files import FollowedFiles, append, lines


def test_existing_rows_are_copied_then_completed_then_followed(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]
        messages = source.messages()
        modes = [message.mode for message in messages]
        assert modes == [Mode.COPY, Mode.COPY, Mode.COMPLETE, Mode.SYNC]
        assert messages[2].data == b'{"rows":2}'
        assert {message.key for message in messages} == {"app"}


def test_a_line_is_read_when_it_is_complete(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        append(log, '{"n":')
        assert source.rows() == [1, 2]
        append(log, "3")
        assert source.rows() == [1, 2]
        append(log, '0}\n{"n":4}')
        assert source.rows() == [1, 2, 30, 4]
        append(log, "\n" + lines(5) + "oops\n")
        assert source.rows() == [1, 2, 30, 4, 5]
        assert [where for where, _, _ in source.bad()] == [f"{log}:6"]


def test_new_files_are_read_from_their_first_byte_in_sync_mode(log: Path) -> None:
    with FollowedFiles(str(log.parent / "**" / "*.jsonl")) as source:
        source.drain()
        deep = log.parent / "a" / "b" / "new.jsonl"
        deep.parent.mkdir(parents=True)
        deep.write_text(lines(3))
        assert source.rows() == [1, 2, 3]
        message = source.messages()[-1]
        assert (message.key, message.mode) == ("new", Mode.SYNC)


def test_rows_of_a_new_file_come_after_the_copy_of_their_namespace(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text(lines(number))
    with FollowedFiles(str(tmp_path / "*.jsonl"), namespace="all") as source:
        (tmp_path / "0new.jsonl").write_text(lines(5))
        assert source.rows() == [0, 1, 2, 3, 4, 5]
        modes = [message.mode for message in source.messages()]
        assert modes == [Mode.COPY] * 5 + [Mode.COMPLETE, Mode.SYNC]


def test_a_copy_reads_exactly_the_lines_present_at_its_start(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.step()
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]
        modes = [message.mode for message in source.messages()]
        assert modes == [Mode.COPY, Mode.COPY, Mode.COMPLETE, Mode.SYNC]


def test_until_now_reads_only_the_lines_present_at_its_start(log: Path) -> None:
    other = log.with_name("other.jsonl")
    with FollowedFiles(str(log.parent / "*.jsonl"), Until.NOW) as source:
        append(log, lines(3))
        other.write_text(lines(4))
        assert source.rows() == [1, 2]
        source.begin(Until.NOW)
        append(log, lines(5))
        assert sorted(source.rows()) == [1, 2, 3, 4]
        source.begin(Until.NOW)
        assert sorted(source.rows()) == [1, 2, 3, 4, 5]


def test_until_now_ends_although_a_line_is_incomplete(log: Path) -> None:
    append(log, '{"n":')
    with FollowedFiles(str(log), Until.NOW) as source:
        append(log, "3}\n")
        assert source.rows() == [1, 2]
        source.begin(Until.NOW)
        assert source.rows() == [1, 2, 3]
        assert source.bad() == []


def test_a_symbolic_link_that_is_replaced_is_followed(log: Path) -> None:
    link = log.with_name("current.jsonl")
    link.symlink_to(log)
    with FollowedFiles(str(link)) as source:
        assert source.rows() == [1, 2]
        next_log = log.with_name("next.jsonl")
        next_log.write_text(lines(3))
        link.unlink()
        link.symlink_to(next_log)
        assert source.rows() == [1, 2, 3]


def test_two_names_of_a_file_are_one_file(log: Path) -> None:
    os.link(log, log.with_name("second.jsonl"))
    with FollowedFiles(str(log.parent / "*.jsonl")) as source:
        assert source.rows() == [1, 2]


def test_a_copy_of_a_file_is_a_file_of_its_own(log: Path) -> None:
    with FollowedFiles(str(log.parent / "*.jsonl")) as source:
        source.drain()
        shutil.copy(log, log.with_name("copy.jsonl"))
        assert source.rows() == [1, 2, 1, 2]


def test_a_compressed_file_is_followed_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl.gz"
    path.write_bytes(gzip.compress(lines(1, 2).encode()))
    whole = gzip.compress(lines(*range(3, 500)).encode())
    with FollowedFiles(str(path)) as source:
        assert source.rows() == [1, 2]
        for start in range(0, len(whole), 100):
            with path.open("ab") as file:
                file.write(whole[start : start + 100])
            source.drain()
            if start % 300 == 0:
                source.begin()
        assert source.rows() == list(range(1, 500))
        assert source.bad() == []


def test_a_damaged_compressed_file_is_a_dead_letter_and_other_files_continue(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"this is not gzip at all")
    (tmp_path / "b.jsonl").write_text(lines(1))
    with FollowedFiles(str(tmp_path / "*")) as source:
        assert source.rows() == [1]
        [(where, error, _)] = source.bad()
        assert where == f"{tmp_path}/a.jsonl.gz:1"
        assert "not gzip" in error


def test_a_new_file_of_unknown_format_is_a_dead_letter(log: Path) -> None:
    with FollowedFiles(str(log.parent / "*")) as source:
        source.drain()
        log.with_name("notes.txt").write_text("hello")
        assert [where for where, _, _ in source.bad()] == [str(log.with_name("notes.txt"))]
        append(log, lines(3))
        assert source.rows() == [1, 2, 3]


def test_more_files_than_file_descriptors_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_text(lines(number))
    # A quarter of them is held open.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with FollowedFiles(str(tmp_path / "*.jsonl"), namespace="all") as source:
        source.drain()
        before = len(os.listdir("/proc/self/fd"))
        for number, path in enumerate(paths):
            append(path, lines(number + 100))
        assert sorted(source.rows()) == [*range(40), *range(100, 140)]
        assert len(os.listdir("/proc/self/fd")) <= before + 16


def test_a_batch_has_about_the_number_of_lines_that_come_after_it(log: Path) -> None:
    with FollowedFiles(str(log)) as source:
        source.drain()
        append(log, f'{{"n":1,"fill":"{"x" * 200}"}}\n' * 80_000)
        lags: list[tuple[int, int | None]] = []
        while not lags or lags[-1][0]:
            source.step()
            states = read_splits(source.hub.backend, "s").states
            lags += [
                (80_000 - state.rows, state.lag)
                for split, state in states.items()
                if split not in ("copy:app", "watch")
            ]
    assert len(lags) > 1
    assert all(lag == pytest.approx(left, rel=0.01) for left, lag in lags)
    assert lags[-1] == (0, 0)
