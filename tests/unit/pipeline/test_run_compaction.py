"""The compaction that a running pipeline does by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import Busy
from tailrace.message import Partition
from tailrace.operations.holdings import embedded_log
from tailrace.operations.hub_info import embedded
from tailrace.pipeline import run as running
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.run import Ending
from tailrace.settings import HubSettings, Sync
from tailrace.source.reader import Until
from tests.pipelines.counting import CountingReader
from tests.pipelines.recording import delivered, set_bad
from tests.pipelines.running import Running, add
from tests.waiting import until

LOG = Partition("lake.commits", 0, 0)
ROWS = 6000


def test_a_run_drops_what_every_writer_has_and_nothing_that_one_of_them_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16, sync=Sync.NONE)
    with tailrace.open(settings=settings) as hub:
        made = Pipeline("lake", CountingReader(ROWS))
        good = add(made, tmp_path, "good")
        stuck = add(made, tmp_path, "stuck", batch_rows=ROWS // 2)
        set_bad(stuck, ROWS // 2)
        assert made.prepare(hub, until=Until.NOW).run() is Ending.FAILED

        monkeypatch.setattr(running, "COMPACT_EVERY_S", 0.01)
        run = Running(made.prepare(hub, until=Until.STOPPED))
        log = embedded_log(hub)
        until(lambda: log.compacted_below(LOG))
        until(lambda: not is_compacted_now(hub))
        assert log.compacted_below(LOG) <= ROWS // 2
        assert run.stop() is Ending.FAILED

        set_bad(stuck)
        assert made.run(hub, once=True) is Ending.DONE
        assert delivered(stuck) == delivered(good) == list(range(ROWS))


def is_compacted_now(hub: tailrace.Hub) -> bool:
    """Whether somebody is about it."""
    try:
        embedded(hub).compact(LOG, lambda: 0)
    except Busy:
        return True
    return False
