"""Sources described, explained, tested and forgotten, while their tasks run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.clock import SystemClock
from tailrace.errors import Busy, ConfigError, InvalidName, InvalidValue, UnknownSource
from tailrace.hub.hub import Hub
from tailrace.operations.audit import read_audit
from tailrace.operations.explain import explain
from tailrace.operations.pipeline.describe import view_pipelines
from tailrace.operations.source.describe import SourceWatch, view_source
from tailrace.operations.source.forget import forget, plan_forget
from tailrace.operations.source.history import (
    SourceEventKind,
    read_source_history,
)
from tailrace.operations.source.trial import try_source
from tailrace.operations.status import status
from tailrace.pipeline.pipeline import Pipeline
from tailrace.source.report import NamespaceState
from tailrace.source.source import Source
from tailrace.source.task.messages import RebalanceEvent, encode_event
from tailrace.source.task.topics import open_heartbeat
from tailrace.testing import MemoryBackend
from tests.support.pipelines.running_pipeline import add
from tests.support.sources.split_reader import SplitReader
from tests.support.sources.tasks import RunningTask, following, set_rows
from tests.support.waiting import until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def owned(hub: Hub) -> list[int]:
    """Return how many units each task owns."""
    return sorted(task.units for task in view_source(hub, "shop").tasks)


def test_two_tasks_are_shown_with_the_units_of_each_and_one_leads(hub: Hub, tmp_path: Path) -> None:
    with RunningTask(hub, following(tmp_path)) as one, RunningTask(hub, following(tmp_path)):
        until(lambda: owned(hub) == [1, 1], "the units are not shared")
        until(lambda: view_source(hub, "shop").records == 10)
        view = view_source(hub, "shop")
        assert sorted(task.leads for task in view.tasks) == [False, True]
        assert all(task.process for task in view.tasks)
        assert {each.state for each in view.namespaces} == {NamespaceState.FOLLOWING}
        assert (view.begun, view.splits, view.unfinished) == (True, 2, 2)
        found = explain(hub, "shop")
        assert found.headline == "FOLLOWING: source shop: 2 tasks"
        assert f"task {one.progress[0].task}" in {fact.name for fact in found.facts}
        assert status(hub).sources == 1
        assert status(hub).well


def test_a_watch_knows_the_rates_from_the_second_look_on(hub: Hub, tmp_path: Path) -> None:
    times = iter([0.0, 2.0])
    watch = SourceWatch(hub, lambda: next(times))
    with RunningTask(hub, following(tmp_path)):
        until(lambda: view_source(hub, "shop").records == 10)
        (first,) = watch.look("shop")
        set_rows(tmp_path, 9)
        until(lambda: view_source(hub, "shop").records == 18)
        (second,) = watch.look()
    assert [each.rows_per_second for each in first.namespaces] == [None, None]
    assert [each.rows_per_second for each in second.namespaces] == [2.0, 2.0]


def test_a_source_explains_which_splits_wait_for_which(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("5")
    reader = SplitReader(("a", "b"), rows_file=str(tmp_path / "rows"), after=("z",))
    with RunningTask(hub, Source("shop", reader)):
        until(lambda: view_source(hub, "shop").begun)
        found = explain(hub, "shop")
    waits = [fact.what for fact in found.facts if fact.name == "waits"]
    assert waits == ["split z starts when a and 1 more split are finished"]


def test_history_tells_joins_leaves_epochs_and_the_units_that_moved(
    hub: Hub, tmp_path: Path
) -> None:
    with RunningTask(hub, following(tmp_path)) as one:
        until(lambda: owned(hub) == [2])
        with RunningTask(hub, following(tmp_path)) as two:
            until(lambda: owned(hub) == [1, 1])
        until(lambda: owned(hub) == [2])
        first, second = one.progress[-1].task, two.progress[-1].task
    events = read_source_history(hub, "shop", 100)
    told = [(each.event, each.task) for each in events]
    assert told.count((SourceEventKind.JOINED, first)) == 1
    assert told.count((SourceEventKind.JOINED, second)) == 1
    (leads,) = [each for each in events if each.event is SourceEventKind.LEADS]
    assert (leads.task, leads.why) == (first, "no task had it")
    assert told.index((SourceEventKind.LEFT, second)) < told.index((SourceEventKind.LEFT, first))
    moves = [each for each in events if each.event is SourceEventKind.MOVED]
    assert [(each.before, each.task, each.moved) for each in moves] == [
        (first, second, 1),
        (second, first, 1),
    ]
    assert moves[0].units == moves[1].units
    epochs = [each.generation for each in events if each.event is SourceEventKind.EPOCH]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 3
    assert read_source_history(hub, "shop", 2) == events[-2:]


def test_unknown_names_are_errors_that_help(hub: Hub, tmp_path: Path) -> None:
    Source("shop", SplitReader()).run(hub, once=True)
    for call in (view_source, plan_forget, lambda h, n: read_source_history(h, n, 1)):
        with pytest.raises(UnknownSource, match=r"did you mean 'shop'\?"):
            call(hub, "shopp")
    with pytest.raises(InvalidValue, match=r"did you mean 'shop'\?"):
        explain(hub, "shopp")
    lake = Pipeline("lake", SplitReader())
    add(lake, tmp_path, "out")
    lake.run(hub, once=True)
    with pytest.raises(InvalidValue, match=r"'lake' is a pipeline, which reads by itself"):
        view_source(hub, "lake")


def test_a_pipeline_that_follows_a_source_names_it_and_its_state(hub: Hub, tmp_path: Path) -> None:
    shop = Source("shop", SplitReader())
    shop.run(hub, once=True)
    lake = Pipeline("lake", shop)
    add(lake, tmp_path, "out")
    lake.run(hub, once=True)
    (view,) = view_pipelines(hub)
    assert view.source == "shop"
    assert str(view.source_state).startswith("IDLE since ")
    assert view_source(hub, "shop").followed_by == ("lake",)
    remedies = {each.name: each.command for each in explain(hub, "lake").remedies}
    assert remedies["source"] == "tailrace explain shop"
    forget(hub, "shop")
    (view,) = view_pipelines(hub)
    assert view.source_state == "FORGOTTEN: run a task of it"


def test_a_test_of_a_source_shows_rows_and_writes_nothing(hub: Hub) -> None:
    found = try_source(Source("shop", SplitReader()), hub)
    assert [(row.namespace, row.document) for row in found.rows] == [("a", {"n": 0})]
    assert hub.topics() == []


def test_a_test_names_what_is_wrong(hub: Hub, tmp_path: Path) -> None:
    lake = Pipeline("lake", SplitReader())
    add(lake, tmp_path, "out")
    lake.run(hub, once=True)
    with pytest.raises(ConfigError, match=r"lake.toml: source.name: 'lake' is not a valid source"):
        try_source(Source("lake", SplitReader(), origin="lake.toml"), hub)


def test_a_source_with_the_name_of_a_pipeline_creates_no_topics(hub: Hub, tmp_path: Path) -> None:
    lake = Pipeline("lake", Source("shop", SplitReader()))
    add(lake, tmp_path, "out")
    Source("shop", SplitReader()).run(hub, once=True)
    lake.run(hub, once=True)
    with pytest.raises(InvalidName, match="there is a pipeline 'lake'"):
        Source("lake", SplitReader()).run(hub, once=True)
    assert "lake.commits" not in hub.topics()


def test_a_source_is_forgotten_but_its_rows_stay(hub: Hub) -> None:
    Source("shop", SplitReader(("a",), rows=5)).run(hub, once=True)
    plan = plan_forget(hub, "shop")
    assert "commit log shop.commits with 5 records" in str(plan)
    forget(hub, "shop", "the shop is closed")
    with pytest.raises(UnknownSource):
        view_source(hub, "shop")
    left = [entry.key for entry in hub.backend.store.scan("") if "shop" in entry.key]
    assert set(left) == {"topic/shop.commits", "topic/shop.dead-letters"}
    (entry,) = read_audit(hub, "shop", 10)
    assert (entry.command, entry.reason) == ("source forget", "the shop is closed")
    Source("shop", SplitReader(("a",), rows=5)).run(hub, once=True)
    assert view_source(hub, "shop").records == 10


def test_a_source_that_runs_is_not_forgotten(hub: Hub, tmp_path: Path) -> None:
    with RunningTask(hub, following(tmp_path)), pytest.raises(Busy, match="source shop runs"):
        forget(hub, "shop")
    assert view_source(hub, "shop").name == "shop"


def test_a_member_that_disappears_without_having_left_has_died(hub: Hub, tmp_path: Path) -> None:
    with RunningTask(hub, following(tmp_path)) as task:
        until(lambda: owned(hub) == [2])
    name = task.progress[-1].task
    heartbeat = open_heartbeat(hub.backend, "shop", 0)
    for number, members in enumerate([("gone", name), ()], 2):
        event = RebalanceEvent(number, members, name)
        heartbeat.append([encode_event(event)], None, SystemClock().now_ms())
    ends = [
        (each.event, each.task)
        for each in read_source_history(hub, "shop", 100)
        if each.event in (SourceEventKind.DIED, SourceEventKind.LEFT)
    ]
    assert ends == [(SourceEventKind.LEFT, name), (SourceEventKind.DIED, "gone")]
