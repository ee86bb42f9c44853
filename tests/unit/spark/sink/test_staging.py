"""The directory in which executors stage rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.spark.sink.staging import (
    WRITE_AGE_MAX_S,
    StagingDirectory,
    new_write_folder,
    query_folder,
)


def test_every_driver_of_a_directory_reads_the_same_token(tmp_path: Path) -> None:
    first = StagingDirectory.prepare(tmp_path / "a" / "staging")
    assert StagingDirectory.prepare(tmp_path / "a" / "staging") == first
    assert [path.name for path in Path(first.path).iterdir()] == ["id"]


def test_a_directory_of_the_same_path_on_another_host_is_not_reachable(tmp_path: Path) -> None:
    shared = StagingDirectory.prepare(tmp_path / "staging")
    assert shared.is_reachable()
    (tmp_path / "staging").rename(tmp_path / "elsewhere")
    assert not shared.is_reachable()
    StagingDirectory.prepare(tmp_path / "staging")
    assert not shared.is_reachable()


def test_a_directory_that_cannot_be_made_is_refused_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="valid: option staging=DIRECTORY"):
        StagingDirectory.prepare(tmp_path / "file" / "staging")


def test_a_commit_removes_the_files_of_its_query_up_to_its_batch(tmp_path: Path) -> None:
    staging = StagingDirectory.prepare(tmp_path)
    kept = [
        staging.new_file(query_folder("a"), "10-"),
        staging.new_file(query_folder("b"), "1-"),
        staging.new_file(new_write_folder(), ""),
    ]
    removed = [staging.new_file(query_folder("a"), prefix) for prefix in ("2-", "9-")]
    for path in (*kept, *removed):
        path.touch()
    staging.remove_batches("a", 9)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in removed)
    staging.remove_batches("a", 10)
    assert not Path(staging.path, query_folder("a")).exists()


def test_a_file_that_cannot_be_removed_fails_no_commit(tmp_path: Path) -> None:
    staging = StagingDirectory.prepare(tmp_path)
    stuck, path = (staging.new_file(query_folder("a"), prefix) for prefix in ("1-", "2-"))
    stuck.mkdir()
    path.touch()
    staging.remove_batches("a", 2)
    assert (stuck.exists(), path.exists()) == (True, False)


def test_files_of_batch_writes_whose_driver_died_are_removed_by_age(tmp_path: Path) -> None:
    staging = StagingDirectory.prepare(tmp_path)
    own, old, young = (staging.new_file(new_write_folder(), "") for _ in range(3))
    for path in (own, old, young):
        path.touch()
    for path in (old, old.parent):
        os.utime(path, (1000, 1000))
    for path in (young, young.parent):
        os.utime(path, (2000, 2000))
    staging.remove_write(own.parent.name, now_s=1500 + WRITE_AGE_MAX_S)
    assert [path.parent.exists() for path in (own, old, young)] == [False, False, True]
