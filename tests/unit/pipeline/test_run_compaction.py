"""The automatic compaction of a running pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.backend.capabilities import compaction_of, segments_of
from tailrace.errors import Busy
from tailrace.message import Partition
from tailrace.pipeline import run as running
from tailrace.pipeline.pipeline import Pipeline
from tailrace.pipeline.report import RunOutcome
from tailrace.settings import HubSettings, Sync
from tailrace.source.reader import Until
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import delivered, set_bad
from tests.support.pipelines.running_pipeline import RunningPipeline, add
from tests.support.waiting import until

LOG = Partition("lake.commits", 0, 0)
ROWS = 6000


def test_a_run_drops_records_that_every_writer_has_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16, sync=Sync.NONE)
    with tailrace.open(settings=settings) as hub:
        made = Pipeline("lake", CountingReader(ROWS))
        good = add(made, tmp_path, "good")
        stuck = add(made, tmp_path, "stuck", batch_rows=ROWS // 2)
        set_bad(stuck, ROWS // 2)
        assert made.prepare(hub, until=Until.NOW).run() is RunOutcome.FAILED

        monkeypatch.setattr(running, "COMPACT_EVERY_S", 0.01)
        run = RunningPipeline(made.prepare(hub, until=Until.STOPPED))
        log = segments_of(hub.backend, "list segments")
        until(lambda: log.whole_from(LOG))
        until(lambda: not is_compacted_now(hub))
        assert log.whole_from(LOG) <= ROWS // 2
        assert run.stop() is RunOutcome.FAILED

        set_bad(stuck)
        assert made.run(hub, once=True).outcome is RunOutcome.DONE
        assert delivered(stuck) == delivered(good) == list(range(ROWS))


def is_compacted_now(hub: tailrace.Hub) -> bool:
    """True if a compaction is running."""
    try:
        compaction_of(hub.backend, "compact").compact(LOG, lambda: 0)
    except Busy:
        return True
    return False
