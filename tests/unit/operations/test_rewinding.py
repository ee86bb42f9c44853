"""Rewinding a writer and forgetting one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tailrace
from tailrace import writers
from tailrace.errors import Busy, InvalidValue, PipelineFailed
from tailrace.hub import Hub
from tailrace.hub import open as open_hub
from tailrace.operations.audit import read_audit
from tailrace.operations.explain import explain
from tailrace.operations.holdings import embedded_log
from tailrace.operations.hub_info import embedded
from tailrace.operations.interventions import ack
from tailrace.operations.records_between import amount_between
from tailrace.operations.registered import find_writer
from tailrace.operations.rewinding import forget, plan_forget, plan_rewind, rewind
from tailrace.pipeline.books import State
from tailrace.pipeline.registry import find, hold_name
from tailrace.pipeline.run import Ending
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import low_water
from tests.pipelines.counting import CountingReader
from tests.unit.operations.desk import LOG, Desk


def test_a_rewound_writer_delivers_again_from_there(desk: Desk) -> None:
    assert desk.run()
    plan = plan_rewind(desk.hub, "lake/crm", "9")
    assert plan.changes
    assert "7 records" in "\n".join(plan.lines)
    assert desk.mark() == 16
    rewind(desk.hub, "lake/crm", "9")
    assert desk.mark() == 9
    assert desk.run()
    assert desk.given() == [*range(16), *range(9, 16)]
    (entry,) = read_audit(desk.hub, "lake/crm", 20)
    assert entry.command == "pipeline rewind"
    assert entry.before["marks"] == {str(LOG): 16}
    assert entry.after["marks"] == {str(LOG): 9}


def test_what_was_acknowledged_by_hand_comes_again_too(desk: Desk) -> None:
    desk.fail_at_14()
    ack(desk.hub, "lake/crm", "14", "by mistake")
    assert desk.run()
    desk.refuse()
    rewind(desk.hub, "lake/crm", "12")
    assert desk.run()
    assert desk.given() == [*range(14), 15, *range(12, 16)]


def test_a_rewind_never_acknowledges_what_was_not(desk: Desk) -> None:
    desk.fail_at_14()
    plan = plan_rewind(desk.hub, "lake/crm", "15")
    assert not plan.changes
    assert "nothing comes again" in plan.lines[0]
    ack(desk.hub, "lake/crm", "15", "it can wait")
    rewind(desk.hub, "lake/crm", "15")
    assert desk.mark() == 14
    desk.refuse()
    assert desk.run()
    assert desk.given() == list(range(16))


def test_a_rewind_lets_a_failed_writer_go_on_and_drops_its_open_plan(desk: Desk) -> None:
    desk.fail_at_14()
    assert desk.books().plan is not None
    rewind(desk.hub, "lake/crm", "0")
    assert desk.books().plan is None
    assert desk.books().state.state is State.STOPPED


@pytest.mark.parametrize(("offset", "told"), [("17", "0 to 16"), ("3-4", "one offset")])
def test_a_rewind_to_where_the_log_is_not_is_refused(desk: Desk, offset: str, told: str) -> None:
    assert desk.run()
    with pytest.raises(InvalidValue, match=told):
        rewind(desk.hub, "lake/crm", offset)
    assert desk.mark() == 16


def test_a_rewind_below_what_compaction_left_is_refused(tmp_path: Path) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16)
    with open_hub(settings=settings) as hub:
        desk = Desk(hub, tmp_path, rows=3000)
        assert desk.run()
        desk.rows = 6000
        assert desk.run()
        assert embedded(hub).compact(LOG, lambda: 6000).rewritten
        below = embedded_log(hub).compacted_below(LOG)
        with pytest.raises(InvalidValue, match="compacted"):
            rewind(hub, "lake/crm", str(below - 1))
        rewind(hub, "lake/crm", str(below))
        assert desk.mark() == below
        log = embedded_log(hub)
        held = sum(segment.records for segment in log.segments(LOG))
        assert amount_between(log, LOG, 0, 6000).records == held < 6000


def test_a_sink_that_keeps_its_own_record_forgets_what_is_rewound(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    lake = tailrace.Pipeline("lake", CountingReader(rows=16))
    lake.write("crm", writers.sql(f"sqlite:///{tmp_path / 'crm.db'}"), engine="direct")
    lake.run(hub, once=True)

    def numbers() -> list[int]:
        with sqlite3.connect(tmp_path / "crm.db") as database:
            return [row[0] for row in database.execute("SELECT n FROM numbers ORDER BY n")]

    with sqlite3.connect(tmp_path / "crm.db") as database:
        database.execute("DELETE FROM numbers WHERE n >= 9")
    database.close()
    lake.run(hub, once=True)
    assert numbers() == list(range(9))
    rewind(hub, "lake/crm", "9")
    lake.run(hub, once=True)
    assert numbers() == list(range(16))


def test_a_forgotten_writer_holds_compaction_up_no_longer(desk: Desk) -> None:
    desk.writers = ("crm", "old")
    desk.refuse(0, name="old")
    assert not desk.run()
    backend = desk.hub.backend
    assert low_water(backend, LOG) == ("lake/old", 0)
    assert "compaction" in "\n".join(plan_forget(desk.hub, "lake/old").lines)
    forget(desk.hub, "lake/old")
    assert low_water(backend, LOG) == ("lake/crm", 16)
    registered = find(backend.store, "lake")
    assert registered is not None
    assert list(registered.writers) == ["crm"]
    with pytest.raises(InvalidValue, match="lake/old"):
        find_writer(desk.hub, "lake/old")
    assert backend.table.scan("ledger/lake/old") == []
    (entry,) = read_audit(desk.hub, "lake/old", 20)
    assert entry.command == "pipeline forget"


def test_a_forgotten_writer_of_the_same_name_begins_as_a_new_one(desk: Desk) -> None:
    assert desk.run()
    forget(desk.hub, "lake/crm")
    assert desk.run()
    assert desk.given() == [*range(16), *range(16)]


def test_a_writer_is_not_forgotten_while_its_pipeline_runs(desk: Desk) -> None:
    assert desk.run()
    with desk.hub.backend.hold(hold_name("lake"), "process 4121"):
        for act in (plan_forget, forget):
            with pytest.raises(Busy, match="process 4121"):
                act(desk.hub, "lake/crm")
    assert desk.mark() == 16


def lake_of_files(hub: Hub, tmp_path: Path) -> tailrace.Pipeline:
    """Two files of ten rows each, by the writer ``lake/files``."""
    rows = tmp_path / "rows"
    lake = tailrace.Pipeline("lake", CountingReader(rows_file=str(rows)))
    lake.write("files", writers.file(str(tmp_path / "out")), engine="direct")
    for count in (10, 20):
        rows.write_text(str(count))
        lake.run(hub, once=True)
    return lake


def test_a_rewind_into_the_middle_of_a_file_is_explained_by_the_rewinds_that_are_valid(
    desk: Desk, tmp_path: Path
) -> None:
    lake = lake_of_files(desk.hub, tmp_path)
    assert "beginning of one of its files" in "\n".join(rewind(desk.hub, "lake/files", "5").lines)
    with pytest.raises(PipelineFailed, match="only whole files"):
        lake.run(desk.hub, once=True)
    commands = [each.command for each in explain(desk.hub, "lake/files").remedies]
    assert commands == [
        "tailrace pipeline rewind lake/files 0",
        "tailrace pipeline rewind lake/files 10",
    ]
    lines = rewind(desk.hub, "lake/files", "10").lines
    assert lines[0].endswith("goes back to lake.commits/0.0@10, not @5: no sink knows of that yet")
    assert "0 records" not in lines[1]
    assert lake.run(desk.hub, once=True) is Ending.DONE
    written = sorted(path for path in (tmp_path / "out" / "numbers").iterdir())
    assert [len(path.read_text().splitlines()) for path in written] == [10, 10]


def test_the_plan_of_a_rewind_says_which_sinks_have_rows_twice_then(desk: Desk) -> None:
    assert desk.run()
    plan = "\n".join(plan_rewind(desk.hub, "lake/crm", "9").lines)
    assert "a topic, a table without a key or a sink of Spark holds are there twice" in plan
