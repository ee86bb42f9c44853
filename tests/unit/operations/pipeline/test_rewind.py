"""Rewinding a writer and forgetting one."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tailrace
from tailrace import writers
from tailrace.backend.capabilities import compaction_of, segments_of
from tailrace.backend.contract import Transaction
from tailrace.errors import Busy, Error, InvalidValue, PipelineFailed
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.log.record import Record
from tailrace.operations.audit import read_audit
from tailrace.operations.explain import explain
from tailrace.operations.pipeline.forget import forget, plan_forget
from tailrace.operations.pipeline.interventions import Intervention, ack
from tailrace.operations.pipeline.lookup import find_writer
from tailrace.operations.pipeline.rewind import plan_rewind, rewind
from tailrace.pipeline.catalog import find, hold_name
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.stored_writer import store_writer
from tailrace.pipeline.writer import Staged
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.plan import PlanKind, PlanPart, WritePlan
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import low_water
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.lake import LOG, Lake


def test_a_rewound_writer_redelivers_from_the_offset(lake: Lake) -> None:
    assert lake.run()
    plan = plan_rewind(lake.hub, "lake/crm", "9")
    assert plan.changes
    assert "7 acknowledged records" in str(plan)
    assert lake.mark() == 16
    rewind(lake.hub, "lake/crm", "9")
    assert lake.mark() == 9
    assert lake.run()
    assert lake.delivered() == [*range(16), *range(9, 16)]
    (entry,) = read_audit(lake.hub, "lake/crm", 20)
    assert entry.command == "pipeline rewind"
    assert entry.before["marks"] == {str(LOG): 16}
    assert entry.after["marks"] == {str(LOG): 9}


def test_records_acknowledged_by_an_operator_are_redelivered_after_a_rewind_too(lake: Lake) -> None:
    lake.fail_at_14()
    ack(lake.hub, "lake/crm", "14", "by mistake")
    assert lake.run()
    lake.refuse()
    rewind(lake.hub, "lake/crm", "12")
    assert lake.run()
    assert lake.delivered() == [*range(14), 15, *range(12, 16)]


def test_a_rewind_never_acknowledges_records(lake: Lake) -> None:
    lake.fail_at_14()
    plan = plan_rewind(lake.hub, "lake/crm", "15")
    assert not plan.changes
    assert "nothing to redeliver" in plan.summary
    ack(lake.hub, "lake/crm", "15", "it can wait")
    rewind(lake.hub, "lake/crm", "15")
    assert lake.mark() == 14
    lake.refuse()
    assert lake.run()
    assert lake.delivered() == list(range(16))


def test_a_rewind_lets_a_failed_writer_continue_and_drops_its_open_plan(lake: Lake) -> None:
    lake.fail_at_14()
    assert lake.ledger().plan is not None
    rewind(lake.hub, "lake/crm", "0")
    assert lake.ledger().plan is None
    assert lake.ledger().state.state is WriterStatus.STOPPED


@pytest.mark.parametrize(("offset", "error"), [("17", "0 to 16"), ("3-4", "one offset")])
def test_a_rewind_outside_the_log_is_refused(lake: Lake, offset: str, error: str) -> None:
    assert lake.run()
    with pytest.raises(InvalidValue, match=error):
        rewind(lake.hub, "lake/crm", offset)
    assert lake.mark() == 16


def test_a_rewind_below_the_compacted_records_is_refused(tmp_path: Path) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16)
    with open_hub(settings=settings) as hub:
        lake = Lake(hub, tmp_path, rows=3000)
        assert lake.run()
        lake.rows = 6000
        assert lake.run()
        assert compaction_of(hub.backend, "compact").compact(LOG, lambda: 6000).rewritten
        below = hub.backend.log.whole_from(LOG)
        with pytest.raises(InvalidValue, match="compacted"):
            rewind(hub, "lake/crm", str(below - 1))
        rewind(hub, "lake/crm", str(below))
        assert lake.mark() == below
        log = segments_of(hub.backend, "list segments")
        held = sum(segment.records for segment in log.segments(LOG))
        assert log.amount(LOG, 0, 6000).records == held < 6000


def test_a_sink_that_keeps_its_own_offsets_forgets_the_rewound_ones(tmp_path: Path) -> None:
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


def test_a_forgotten_writer_no_longer_blocks_compaction(lake: Lake) -> None:
    lake.writers = ("crm", "old")
    lake.refuse(0, name="old")
    assert not lake.run()
    backend = lake.hub.backend
    assert low_water(backend, LOG) == ("lake/old", 0)
    assert "compaction" in str(plan_forget(lake.hub, "lake/old"))
    forget(lake.hub, "lake/old")
    assert low_water(backend, LOG) == ("lake/crm", 16)
    registered = find(backend.store, "lake")
    assert registered is not None
    assert list(registered.writers) == ["crm"]
    with pytest.raises(InvalidValue, match="lake/old"):
        find_writer(lake.hub, "lake/old")
    assert backend.table.scan("ledger/lake/old") == []
    (entry,) = read_audit(lake.hub, "lake/old", 20)
    assert entry.command == "pipeline forget"


def test_a_writer_with_the_name_of_a_forgotten_one_starts_as_a_new_one(lake: Lake) -> None:
    assert lake.run()
    forget(lake.hub, "lake/crm")
    assert lake.run()
    assert lake.delivered() == [*range(16), *range(16)]


def test_a_writer_is_not_forgotten_while_its_pipeline_runs(lake: Lake) -> None:
    assert lake.run()
    with lake.hub.backend.hold(hold_name("lake"), "process 4121"):
        for act in (plan_forget, forget):
            with pytest.raises(Busy, match="process 4121"):
                act(lake.hub, "lake/crm")
    assert lake.mark() == 16


def lake_of_files(
    hub: Hub, tmp_path: Path, kind: type[writers.file] = writers.file
) -> tailrace.Pipeline:
    """Return a pipeline whose writer ``lake/files`` has written two files of ten rows."""
    rows = tmp_path / "rows"
    lake = tailrace.Pipeline("lake", CountingReader(rows_file=str(rows)))
    lake.write("files", kind(str(tmp_path / "out")), engine="direct")
    for count in (10, 20):
        rows.write_text(str(count))
        lake.run(hub, once=True)
    return lake


def everything_of(hub: Hub, out: Path) -> tuple[object, ...]:
    """Return the ledger's tables, the fence and the files, which a refusal must not change."""
    name = find_writer(hub, "lake/files").name
    tables = [hub.backend.table.scan(table) for table in (*name.ledgers, "writers/lake")]
    return tables, hub.backend.store.get(f"fence/{name.fence}"), sorted(out.rglob("*"))


def test_a_rewind_into_the_middle_of_a_file_is_refused_with_the_nearest_valid_offsets(
    lake: Lake, tmp_path: Path
) -> None:
    files = lake_of_files(lake.hub, tmp_path)
    before = everything_of(lake.hub, tmp_path / "out")
    for offset, low, high in (("5", 0, 10), ("19", 10, 20)):
        valid = f"{low} or {high}"
        for act in (plan_rewind, rewind):
            with pytest.raises(InvalidValue, match=f"valid: {valid}, because a file") as refused:
                act(lake.hub, "lake/files", offset)
            command = f"tailrace pipeline rewind lake/files {low}"
            assert command in str(refused.value)
    assert everything_of(lake.hub, tmp_path / "out") == before
    assert read_audit(lake.hub, "lake/files", 10) == []
    plan = rewind(lake.hub, "lake/files", "lake.commits/0.0@10")
    assert "moved to _tailrace/rewound" in str(plan)
    assert files.run(lake.hub, once=True).writer("files").rows == 10
    written = sorted(path for path in (tmp_path / "out" / "numbers").iterdir())
    assert [len(path.read_text().splitlines()) for path in written] == [10, 10]


def test_a_rewind_into_the_middle_of_a_staged_file_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake_of_files(lake.hub, tmp_path)
    ledger = lake.ledger("files")
    ledger.take_over()
    staged, part = Staged(Offsets(20, 30), 10), PlanPart(str(LOG), 20, 30)
    ledger.commit(plan=WritePlan("7-1", PlanKind.BULK, (part,), (staged,), (part,)))
    record = Record(0, 0, 0, 0, b"numbers", None, b"{}")
    lake.hub.backend.commit(Transaction(((LOG, (record,) * 10),)))
    with pytest.raises(InvalidValue, match="valid: 20 or 30, because a file"):
        rewind(lake.hub, "lake/files", "25")


def test_a_file_published_between_the_plan_and_the_rewind_is_not_rewound_in_its_middle(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = lake_of_files(lake.hub, tmp_path)
    record = Record(0, 0, 0, 0, b"numbers", None, b"{}")
    lake.hub.backend.commit(Transaction(((LOG, (record,) * 10),)))
    apply = Intervention.apply

    def publish_and_apply(self: Intervention, command: str, decide: Any) -> None:
        files.run(lake.hub, once=True)
        apply(self, command, decide)

    monkeypatch.setattr(Intervention, "apply", publish_and_apply)
    with pytest.raises(InvalidValue, match="because a file of the sink is rewound as a whole"):
        rewind(lake.hub, "lake/files", "25")
    assert read_audit(lake.hub, "lake/files", 10) == []


def test_a_rewind_whose_sink_cannot_be_asked_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake_of_files(lake.hub, tmp_path)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(Error, match="the sink of lake/files cannot be read"):
        rewind(lake.hub, "lake/files", "10")


def test_a_writer_whose_url_has_a_password_is_not_stored() -> None:
    assert store_writer(writers.parquet("s3://bucket/orders")) is not None
    assert store_writer(writers.parquet("s3://key:secret@bucket/orders")) is None
    assert store_writer(writers.sql("postgresql://user:secret@host/crm")) is None


class LateRefusal(writers.file, frozen=True):
    """A writer of another package, which refuses a rewind only when it is applied."""

    may_refuse_rewind: ClassVar[bool] = False


def test_a_rewind_that_is_refused_when_it_is_applied_is_explained_by_the_valid_ones(
    lake: Lake, tmp_path: Path
) -> None:
    files = lake_of_files(lake.hub, tmp_path, LateRefusal)
    rewind(lake.hub, "lake/files", "5")
    with pytest.raises(PipelineFailed, match="valid: 0 or 10: only whole files"):
        files.run(lake.hub, once=True)
    commands = [each.command for each in explain(lake.hub, "lake/files").remedies]
    assert commands == [
        "tailrace pipeline rewind lake/files 0",
        "tailrace pipeline rewind lake/files 10",
    ]
    plan = rewind(lake.hub, "lake/files", "10")
    assert plan.summary.endswith("rewind to lake.commits/0.0@10 instead of @5, not yet applied")
    assert "0 acknowledged records" not in str(plan)
    assert files.run(lake.hub, once=True).outcome is RunOutcome.DONE


def test_the_plan_of_a_rewind_names_the_sinks_that_get_rows_twice(lake: Lake) -> None:
    assert lake.run()
    plan = str(plan_rewind(lake.hub, "lake/crm", "9"))
    assert "a topic, a table without a key and a Spark sink hold these rows twice" in plan
