"""Views of pipelines and their writers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.backend.capabilities import compaction_of
from tailrace.errors import ConfigError, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.operations.explain import explain
from tailrace.operations.pipeline.describe import view_pipelines, with_rates
from tailrace.pipeline.catalog import hold_name, register
from tailrace.pipeline.definition.settings import PipelineSettings
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import consumers
from tests.support.pipelines.lake import LOG, Lake


def test_a_pipeline_shows_each_writer_with_its_state_rows_and_lag(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.fail_at_14()
    (view,) = view_pipelines(lake.hub)
    crm, files = view.writers
    assert (view.running, view.slowest) == (None, "lake/crm")
    assert (crm.state, crm.rows, crm.lag) == (WriterStatus.FAILED, 14, 2)
    assert crm.position == "lake.commits/0.0@14"
    assert crm.marks == {"lake.commits/0.0": 14}
    assert (files.state, files.rows, files.lag) == (WriterStatus.STOPPED, 16, 0)
    (watched,) = with_rates([view], {"lake/files": 6}, 2.0)
    assert [writer.rows_per_second for writer in watched.writers] == [None, 5.0]


def test_a_writer_runs_only_while_its_pipeline_runs(lake: Lake) -> None:
    assert lake.run()
    ledger = lake.ledger()
    ledger.take_over()
    killed = ledger.state.__class__(WriterStatus.RUNNING, 16)
    ledger.commit(plan=None, state=killed)
    assert view_pipelines(lake.hub)[0].writers[0].state is WriterStatus.STOPPED
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        (view,) = view_pipelines(lake.hub, "lake")
        assert (view.running, view.writers[0].state) == ("process 7", WriterStatus.RUNNING)


def test_the_writer_that_blocks_the_reader_is_named(lake: Lake) -> None:
    lake.writers = ("crm", "files")
    lake.refuse(0)
    assert not lake.run()
    small = replace(lake.pipeline().definition, settings=PipelineSettings(log_bytes_max=100))
    register(lake.hub.backend.store, small)
    (stopped,) = view_pipelines(lake.hub)
    assert not stopped.reader_blocked
    with lake.hub.backend.hold(hold_name("lake"), "process 7"):
        (view,) = view_pipelines(lake.hub)
        assert (view.reader_blocked, view.slowest) == (True, "lake/crm")
        assert view.writers[0].lag_bytes > 100
        assert "reader" in {fact.name for fact in explain(lake.hub, "lake/crm").facts}


def test_a_pipeline_whose_log_was_deleted_can_still_be_shown(lake: Lake) -> None:
    assert lake.run()
    lake.hub.delete_topic("lake.commits")
    lake.hub.delete_topic("lake.dead-letters")
    (view,) = view_pipelines(lake.hub)
    assert view.writers[0].lag == 0


def test_an_unknown_pipeline_is_answered_with_the_nearest_name(lake: Lake) -> None:
    with pytest.raises(
        InvalidValue, match=r"^no pipeline 'lake' in .* · no pipeline was run here; "
    ):
        view_pipelines(lake.hub, "lake")
    assert lake.run()
    with pytest.raises(
        InvalidValue, match=r"^no pipeline 'lakes' in .* · valid: lake · did you mean 'lake'\?"
    ):
        view_pipelines(lake.hub, "lakes")


def test_no_pipelines_is_no_error() -> None:
    assert view_pipelines(Hub.from_backend(MemoryBackend())) == []


def test_a_new_writer_whose_beginning_was_compacted_is_refused_and_not_shown(
    tmp_path: Path,
) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16)
    with open_hub(settings=settings) as hub:
        lake = Lake(hub, tmp_path, rows=6000)
        assert lake.run()
        assert compaction_of(hub.backend, "compact").compact(LOG, lambda: 6000).rewritten
        lake.writers = ("crm", "late", "later")
        with pytest.raises(ConfigError, match="were compacted"):
            lake.run()
        (view,) = view_pipelines(hub)
        assert [writer.name for writer in view.writers] == ["lake/crm"]
        assert list(consumers(hub.backend.store, "lake.commits")) == ["lake/crm"]
