"""The WAL of `hub.db` restarts under many readers, and a killed process blocks none."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import TableKey, Transaction
from tailrace.backend.embedded import EmbeddedBackend, database, snapshots
from tests.support.counts import count
from tests.support.processes import Child, Report
from tests.support.records import P0, append, create, read, records

pytestmark = pytest.mark.part("processes")

CHECKPOINT_BYTES = 64 * 2**10
RESTART_BYTES = 512 * 2**10
READERS = 4
KEYS = 997
SCANS = 20
"""Looks of a reader that leave no time between them for the WAL to start over by chance."""

SLACK = 4
"""The factor by which a WAL may exceed its restart size while readers are active."""


def _lower_bounds() -> None:
    database.CHECKPOINT_BYTES = CHECKPOINT_BYTES
    database.RESTART_BYTES = RESTART_BYTES


def _write(report: Report, directory: Path, commits: int) -> None:
    """Child: commits of some pages each; says how much the WAL took in all."""
    _lower_bounds()
    with closing(EmbeddedBackend.open(directory)) as backend:
        wal = directory / "hub.db-wal"
        for number in range(commits):
            table = {TableKey("t", b"%d" % (number * n % KEYS)): b"x" * 500 for n in range(1, 20)}
            backend.commit(Transaction(((P0, records(b"%d" % number)),), table))
        report(wal.stat().st_size)


def _read_without_end(report: Report, directory: Path) -> None:
    """Child: read continuously, as followers in tight loops do."""
    _lower_bounds()
    with closing(EmbeddedBackend.open(directory)) as backend:
        report("ready")
        at = 0
        while True:
            chunk = backend.log.read(P0, at, 1 << 20)
            offsets = chunk.records["offset"].to_pylist()
            assert offsets == list(range(at, at + len(offsets)))
            at = chunk.next_offset
            for _ in range(SCANS):
                backend.table.scan("t", limit=KEYS)


def test_the_wal_restarts_while_readers_read_continuously(tmp_path: Path) -> None:
    commits = count("wal_commits", test=800, soak=10_000)
    with closing(EmbeddedBackend.open(tmp_path, sync="none")) as backend:
        create(backend)
        readers = [Child(_read_without_end, tmp_path) for _ in range(READERS)]
        assert {reader.next_report() for reader in readers} == {"ready"}
        writers = [Child(_write, tmp_path, commits) for _ in range(2)]
        sizes = [writer.next_report() for writer in writers]
        for reader in readers:
            assert list(reader.kill()) == []
            assert reader.exit_code == -9
        assert len(read(backend, P0)) == 2 * commits
    print(f"{2 * commits} commits, WAL {max(sizes):,} bytes at most")
    assert max(sizes) < SLACK * RESTART_BYTES


def test_a_pause_left_by_a_killed_process_is_ended_by_the_next_reader(
    tmp_path: Path,
) -> None:
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        create(backend)
        append(backend, P0, b"a")
        (tmp_path / "hub.pause").write_bytes(b"\1")
        begun = time.monotonic()
        assert backend.log.bounds(P0).end == 1
        assert time.monotonic() - begun >= snapshots.PAUSE_MAX_S
        assert (tmp_path / "hub.pause").read_bytes() == b"\0"


def test_readers_are_asked_to_pause_while_the_wal_is_restarted_and_a_slow_one_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(database, "RESTART_BYTES", 1)
    for module in (database, snapshots):  # long enough for this thread to see the pause
        monkeypatch.setattr(module, "PAUSE_MAX_S", 4.0)
    pause = tmp_path / "hub.pause"
    with (
        closing(EmbeddedBackend.open(tmp_path)) as backend,
        closing(EmbeddedBackend.open(tmp_path)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        create(backend)
        append(backend, P0, b"a")
        with other._database().snapshot() as slow:
            slow.execute("SELECT * FROM meta").fetchall()
            append_in_time = pool.submit(backend.commit, Transaction(((P0, records(b"b")),)))
            while pause.read_bytes() == b"\0":
                assert not append_in_time.done(), "no reader was asked to pause"
            append_in_time.result(timeout=30)
            assert pause.read_bytes() == b"\0"
        append(backend, P0, b"c")
        assert [found.value for found in read(other, P0)] == [b"a", b"b", b"c"]
