"""A process killed inside COMMIT, with its frames in the WAL but not in the WAL's index.

Such frames are nowhere to be seen while another process keeps the index alive, and become
committed when the index is next rebuilt from the WAL. Here the first process puts the index back
as it was before its commit, which is how it would have left it. The second, to which the commit
never happened, appends at the same place and is killed too, before its own commit.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.backend.embedded.writer import GroupWriter
from tailrace.errors import CorruptBatch
from tests.support.processes import Child, Report
from tests.support.records import P0, append, create, records, values

pytestmark = pytest.mark.part("log")

INDEX_HEAD_BYTES = 96
"""Both copies of the head of the WAL's index: while they are not valid it is rebuilt."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _keep_open(report: Report, directory: Path) -> None:
    with closing(EmbeddedBackend.open(directory)):
        report("open")
        signal.pause()


def _die_inside_commit(report: Report, directory: Path) -> None:
    backend = EmbeddedBackend.open(directory)
    # Never closed: that would drop the locks SQLite has on the file.
    index = os.open(directory / "hub.db-shm", os.O_RDWR)
    before = os.pread(index, os.fstat(index).st_size, 0)
    backend.commit(Transaction(((P0, records(b"of the first")),)))
    os.pwrite(index, before, 0)
    _die()


def _die_before_commit(report: Report, directory: Path, *, checks_for_orphans: bool) -> None:
    if not checks_for_orphans:
        make_files: Callable[..., bool] = GroupWriter._find_orphans
        GroupWriter._find_orphans = (  # type: ignore[method-assign]
            lambda self, placed: make_files(self, placed) and False
        )

    def reach(point: str) -> None:
        if point == "written":
            _die()

    backend = EmbeddedBackend.open(directory, reach=reach)
    report(backend.log.bounds(P0).end)
    backend.commit(Transaction(((P0, records(b"by the second")),)))


def _leave_orphans(directory: Path, sync: str, *, checks_for_orphans: bool) -> None:
    with closing(EmbeddedBackend.open(directory, sync=sync)) as backend:
        create(backend)
        append(backend, P0, b"acknowledged")
    bystander = Child(_keep_open, directory)
    assert bystander.next_report() == "open"
    first = Child(_die_inside_commit, directory)
    assert list(first.rest()) == []
    second = Child(_die_before_commit, directory, checks_for_orphans=checks_for_orphans)
    assert list(second.rest()) == [1], "the second process sees nothing of the first one's commit"
    assert (first.exit_code, second.exit_code) == (-9, -9)
    list(bystander.kill())


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_frames_of_a_process_killed_inside_commit_never_meet_other_bytes(
    sync: str, tmp_path: Path
) -> None:
    _leave_orphans(tmp_path, sync, checks_for_orphans=True)
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        assert values(backend, P0) == [b"acknowledged"]
        assert append(backend, P0, b"next").start == 1
        assert values(backend, P0) == [b"acknowledged", b"next"]


def test_without_the_small_commit_the_same_steps_corrupt_a_batch(tmp_path: Path) -> None:
    _leave_orphans(tmp_path, "none", checks_for_orphans=False)
    with closing(EmbeddedBackend.open(tmp_path)) as backend, pytest.raises(CorruptBatch):
        values(backend, P0)


def _append_while_frames_come_back(report: Report, directory: Path) -> None:
    """Child: rebuild the index of the WAL between the check for orphans and the small commit."""
    find_orphans: Callable[..., bool] = GroupWriter._find_orphans
    index = os.open(directory / "hub.db-shm", os.O_RDWR)  # never closed, as above

    def find_and_spoil(self: GroupWriter, placed: object) -> bool:
        found = find_orphans(self, placed)
        if found:
            os.pwrite(index, bytes(INDEX_HEAD_BYTES), 0)
        return found

    GroupWriter._find_orphans = find_and_spoil  # type: ignore[method-assign]
    backend = EmbeddedBackend.open(directory)
    report(append(backend, P0, b"by the second").start)
    _die()


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_frames_that_come_back_late_are_not_overwritten(sync: str, tmp_path: Path) -> None:
    with closing(EmbeddedBackend.open(tmp_path, sync=sync)) as backend:
        create(backend)
        append(backend, P0, b"acknowledged")
    bystander = Child(_keep_open, tmp_path)
    assert bystander.next_report() == "open"
    assert list(Child(_die_inside_commit, tmp_path).rest()) == []
    assert list(Child(_append_while_frames_come_back, tmp_path).rest()) == [2]
    list(bystander.kill())
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        assert values(backend, P0) == [b"acknowledged", b"of the first", b"by the second"]


def test_frames_that_were_not_overwritten_come_back_whole(tmp_path: Path) -> None:
    with closing(EmbeddedBackend.open(tmp_path, sync="none")) as backend:
        create(backend)
        append(backend, P0, b"acknowledged")
    bystander = Child(_keep_open, tmp_path)
    assert bystander.next_report() == "open"
    assert list(Child(_die_inside_commit, tmp_path).rest()) == []
    list(bystander.kill())
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        assert values(backend, P0) == [b"acknowledged", b"of the first"]
