"""Directories that two processes share, or that only have the same name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tailrace.pipeline.engine.probe import SharedDirectories
from tailrace.pipeline.engine.shared_directory import share


def test_a_process_that_reads_the_token_shares_the_directory(tmp_path: Path) -> None:
    shared = share(str(tmp_path), "lake/crm", one_host=False)
    assert shared.read_error() is None
    assert shared.write_error("a", 7) is None
    assert shared.answer_file("a", 7).exists()
    shared.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_and_one_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "sink").mkdir()
    shared = share(str(tmp_path / "sink"), "lake/crm", one_host=False)
    (tmp_path / "sink").rename(tmp_path / "moved")
    assert shared.read_error() == "it has no such directory"
    (tmp_path / "sink").mkdir()
    assert shared.read_error() == "it has another directory of this name"
    shared.token_file.write_text("of another run")
    assert shared.write_error("a", 7) == "it has another directory of this name"
    assert not shared.answer_file("a", 7).exists()


def test_files_that_are_locked_on_one_host_are_not_shared_with_another(tmp_path: Path) -> None:
    shared = share(str(tmp_path), "lake/crm", one_host=True)
    assert shared.read_error() is None
    error = replace(shared, boot="another kernel").read_error()
    assert error is not None
    assert "another host" in error


def test_a_new_token_replaces_those_of_runs_that_were_killed(tmp_path: Path) -> None:
    killed = share(str(tmp_path), "lake/crm", one_host=False)
    killed.answer_file("a", 7).touch()
    share(str(tmp_path), "lake/crm", one_host=False)
    assert killed.read_error() == "it has another directory of this name"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_hub_whose_segments_cannot_be_opened_cannot_be_read(tmp_path: Path) -> None:
    segments = tmp_path / "topics" / "lake.commits" / "0.0-1"
    hub = share(str(tmp_path), "lake/crm", one_host=False)
    directories = SharedDirectories(hub, str(segments.parent), None)
    assert directories.hub_error() is None  # There is no record yet.
    segments.mkdir(parents=True)
    (segments / "0.log").symlink_to("0.log")  # Opening it fails, also for root.
    assert directories.hub_error() == "Too many levels of symbolic links"
