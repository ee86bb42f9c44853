"""Several processes that append to one partition at once."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.message import Range
from tests.support.counts import count
from tests.support.processes import Child, Report
from tests.support.records import P0, P1, create, read, records, values

pytestmark = pytest.mark.part("log")

PROCESSES = 3


def _push(report: Report, hub: Path, name: str, pushes: int) -> None:
    with closing(EmbeddedBackend.open(hub, segment_bytes=5000)) as backend:
        ranges = []
        for number in range(pushes):
            rows = records(f"{name}-{number}-a".encode(), f"{name}-{number}-b".encode())
            ranges += backend.commit(Transaction(((P0, rows), (P1, rows[:1]))))
        report(ranges)


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_concurrent_processes_lose_nothing_share_no_offset_and_keep_their_order(
    sync: str, tmp_path: Path
) -> None:
    pushes = count("pushes", test=60 if sync == "batch" else 300, soak=5000)
    with closing(EmbeddedBackend.open(tmp_path, sync=sync)) as backend:
        create(backend)
        children = [Child(_push, tmp_path, f"p{number}", pushes) for number in range(PROCESSES)]
        reported: list[list[Range]] = [child.next_report(600) for child in children]
        rows = read(backend, P0)
        assert [row.offset for row in rows] == list(range(PROCESSES * pushes * 2))
        assert len(values(backend, P1)) == PROCESSES * pushes
        by_offset = {row.offset: row.value.decode() for row in rows}
        for number, ranges in enumerate(reported):
            mine = [landed for landed in ranges if landed.partition == P0]
            assert all(before.end <= after.start for before, after in pairwise(mine))
            assert [
                by_offset[offset] for landed in mine for offset in (landed.start, landed.end - 1)
            ] == [f"p{number}-{push}-{part}" for push in range(pushes) for part in "ab"]
