"""The WAL of `hub.db` starts over however many read meanwhile, and a dead process pauses nobody."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.backend.contract import TableKey, Transaction
from tailrace.backend.embedded import EmbeddedBackend, database
from tests.contract.records import P0, append, create, read, records
from tests.integration.children import Child, Report
from tests.scale import count

pytestmark = pytest.mark.part("processes")

CHECKPOINT_BYTES = 64 * 2**10
RESTART_BYTES = 512 * 2**10
READERS = 4
SLACK = 4
"""A WAL may grow to so many times what it is to be restarted at, while readers are in its way."""


def _lower_bounds() -> None:
    database.CHECKPOINT_BYTES = CHECKPOINT_BYTES
    database.RESTART_BYTES = RESTART_BYTES


def _write(report: Report, directory: Path, commits: int) -> None:
    """Child: commits of some pages each; says how much the WAL took in all."""
    _lower_bounds()
    with closing(EmbeddedBackend.open(directory)) as backend:
        wal = directory / "hub.db-wal"
        for number in range(commits):
            table = {TableKey("t", b"%d" % (number * n % 997)): b"x" * 500 for n in range(1, 20)}
            backend.commit(Transaction(((P0, records(b"%d" % number)),), table))
        report(wal.stat().st_size)


def _read_without_end(report: Report, directory: Path) -> None:
    """Child: look and look again, as followers in tight loops do."""
    _lower_bounds()
    with closing(EmbeddedBackend.open(directory)) as backend:
        report("ready")
        at = 0
        while True:
            chunk = backend.log.read(P0, at, 1 << 20)
            offsets = chunk.records["offset"].to_pylist()
            assert offsets == list(range(at, at + len(offsets)))
            at = chunk.next_offset
            backend.table.scan("t", limit=200)


def test_the_wal_starts_over_while_readers_look_without_end(tmp_path: Path) -> None:
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


def test_a_pause_that_a_killed_process_left_behind_is_ended_by_whoever_meets_it(
    tmp_path: Path,
) -> None:
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        create(backend)
        append(backend, P0, b"a")
        (tmp_path / "hub.pause").write_bytes(b"\1")
        begun = time.monotonic()
        assert backend.log.bounds(P0).end == 1
        assert time.monotonic() - begun >= database.PAUSE_MAX_S
        assert (tmp_path / "hub.pause").read_bytes() == b"\0"
