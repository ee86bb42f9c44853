"""Pipelines that follow a source, which tasks of its own read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import ConfigError, Hub, Pipeline, PipelineFailed, RunOutcome, Source
from tailrace.operations.pipeline.describe import view_pipelines
from tailrace.pipeline.last_run import find_last_run
from tailrace.testing import MemoryBackend
from tests.support.pipelines.recording_writer import delivered, set_bad
from tests.support.pipelines.running_pipeline import add
from tests.support.sources.split_reader import SplitReader
from tests.support.waiting import DEADLINE_S, until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


@pytest.fixture
def shop() -> Source:
    return Source("shop", SplitReader(("a", "b"), rows=8), partitions=1)


def test_a_run_once_delivers_what_is_in_the_log_of_the_source(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    shop.run(hub, once=True)
    lake, crm = Pipeline("lake", shop), Pipeline("crm", shop)
    paths = [add(made, tmp_path, made.name) for made in (lake, crm)]
    report = lake.run(hub, once=True)
    assert (report.outcome, report.follows, report.rows_read) == (RunOutcome.DONE, "shop", 0)
    crm.run(hub, once=True)
    assert [delivered(path) for path in paths] == [list(range(16))] * 2
    assert lake.run(hub, once=True).writer("lake").rows == 0
    assert {"shop.commits", "lake.dead-letters", "shop.dead-letters"} <= set(hub.topics())
    assert "lake.commits" not in hub.topics()


def test_a_run_delivers_what_the_tasks_read_meanwhile(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    shop.open_topics(hub, 0)
    lake = Pipeline("lake", shop)
    path = add(lake, tmp_path, "out")
    reports = []
    thread = threading.Thread(target=lambda: reports.append(lake.run(hub)))
    thread.start()
    shop.run(hub, once=True)
    until(lambda: delivered(path) == list(range(16)), "the rows are not delivered")
    assert lake.stop()
    thread.join(DEADLINE_S)
    assert [report.outcome for report in reports] == [RunOutcome.STOPPED]
    last = find_last_run(hub.backend, "lake")
    assert last is not None
    assert last.caught_up


def test_a_source_that_has_never_run_is_named_with_the_command_that_runs_it(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    lake = Pipeline("lake", Source("shop", shop.reader, origin="shop.toml"))
    add(lake, tmp_path, "out")
    with pytest.raises(ConfigError, match=r"'shop' has never run .* tailrace source run shop.toml"):
        lake.run(hub, once=True)
    assert hub.topics() == []
    shop.run(hub, once=True)
    nearly = Pipeline("lake", Source("shops", shop.reader))
    add(nearly, tmp_path, "other")
    with pytest.raises(ConfigError, match=r"did you mean 'shop'\?"):
        nearly.run(hub, once=True)


def test_the_log_of_a_source_is_not_created_by_a_pipeline(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    shop.run(hub, once=True)
    hub.delete_topic("shop.commits")
    lake = Pipeline("lake", shop)
    add(lake, tmp_path, "out")
    with pytest.raises(ConfigError, match=r"the commit log shop.commits was deleted .* source run"):
        lake.run(hub, once=True)
    assert "shop.commits" not in hub.topics()


def test_a_pipeline_parks_records_in_dead_letters_of_its_own(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    shop.run(hub, once=True)
    lake = Pipeline("lake", shop)
    path = add(lake, tmp_path, "out", on_error="park")
    set_bad(path, 3)
    assert lake.run(hub, once=True).dead_letters == 1
    assert sum(hub.topic("lake.dead-letters").storage_topics[0].ends) == 1
    assert sum(hub.topic("shop.dead-letters").storage_topics[0].ends) == 0


def test_a_writer_that_fails_stops_no_other_pipeline_of_the_source(
    hub: Hub, shop: Source, tmp_path: Path
) -> None:
    shop.run(hub, once=True)
    lake, crm = Pipeline("lake", shop), Pipeline("crm", shop)
    paths = [add(made, tmp_path, made.name) for made in (lake, crm)]
    set_bad(paths[0], 3)
    with pytest.raises(PipelineFailed):
        lake.run(hub, once=True)
    assert crm.run(hub, once=True).outcome is RunOutcome.DONE
    views = {view.name: view for view in view_pipelines(hub)}
    assert {name: view.reader for name, view in views.items()} == {
        "lake": "source shop",
        "crm": "source shop",
    }
    assert not any(view.reader_unfinished for view in views.values())
