"""What operators see: pipelines, namespaces, explanations, the log, a trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.backend.contract import Transaction
from tailrace.errors import ConfigError, InvalidValue
from tailrace.hub import Hub
from tailrace.hub import open as open_hub
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.operations.explain import explain
from tailrace.operations.explanation import Explanation
from tailrace.operations.hub_info import embedded
from tailrace.operations.namespaces import namespace_offsets
from tailrace.operations.pipeline_log import read_log, view_record
from tailrace.operations.pipeline_run import Watch
from tailrace.operations.pipelines import view_pipelines, with_rates
from tailrace.operations.preflight import try_pipeline
from tailrace.operations.records_between import amount_between
from tailrace.pipeline.books import Books, State, WriterName
from tailrace.pipeline.registry import hold_name, register
from tailrace.settings import HubSettings
from tailrace.source.reader import Until
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import consumers
from tests.pipelines.counting import CountingReader
from tests.pipelines.recording import RecordingWriter
from tests.unit.operations.desk import LOG, Desk

FOUNDING = "AABBAABBCACBAACBAAABBAABBCAC"


def founding(desk: Desk) -> None:
    """The log of the founding text's compaction example, and c0's offsets in it."""
    desk.rows = 0
    desk.writers = ("c0",)
    assert desk.run()
    records = tuple(Record(0, 0, 0, 0, key.encode(), None, b"{}") for key in FOUNDING)
    desk.hub.backend.commit(Transaction(((LOG, records),)))
    books = Books(desk.hub.backend, WriterName("lake", "c0"), desk.hub.topic("lake.commits").view)
    books.take()
    books.progress[LOG].ack(0, 24)
    books.progress[LOG].ack(25, 28)
    books.commit(plan=None)


def test_the_offsets_of_namespaces_are_the_founding_text_s_with_the_hole_at_24(
    desk: Desk,
) -> None:
    founding(desk)
    rows = namespace_offsets(desk.hub, "lake")
    assert [(r.namespace, r.acknowledged, r.waiting, r.holes) for r in rows] == [
        ("A", 26, 0, ()),
        ("B", 23, 1, (24,)),
        ("C", 27, 0, ()),
    ]


def test_namespaces_that_a_writer_does_not_get_are_left_out(desk: Desk) -> None:
    desk.namespaces = ("User", "FooUser", "Order")
    desk.options = {"namespace": "/User/"}
    assert desk.run()
    rows = namespace_offsets(desk.hub, "lake")
    assert [(r.namespace, r.acknowledged) for r in rows] == [("FooUser", 13), ("User", 15)]


def test_a_pipeline_shows_each_writer_with_its_state_rows_and_lag(desk: Desk) -> None:
    desk.writers = ("crm", "files")
    desk.fail_at_14()
    (view,) = view_pipelines(desk.hub)
    crm, files = view.writers
    assert (view.running, view.slowest) == (None, "lake/crm")
    assert (crm.state, crm.rows, crm.behind) == (State.FAILED, 14, 2)
    assert crm.position == "lake.commits/0.0@14"
    assert crm.marks == {"lake.commits/0.0": 14}
    assert (files.state, files.rows, files.behind) == (State.STOPPED, 16, 0)
    (watched,) = with_rates([view], {"lake/files": 6}, 2.0)
    assert [writer.rows_per_second for writer in watched.writers] == [None, 5.0]


def test_a_writer_runs_only_while_somebody_runs_its_pipeline(desk: Desk) -> None:
    assert desk.run()
    books = desk.books()
    books.take()
    killed = books.state.__class__(State.RUNNING, 16)
    books.commit(plan=None, state=killed)
    assert view_pipelines(desk.hub)[0].writers[0].state is State.STOPPED
    with desk.hub.backend.hold(hold_name("lake"), "process 7"):
        (view,) = view_pipelines(desk.hub, "lake")
        assert (view.running, view.writers[0].state) == ("process 7", State.RUNNING)


def test_who_holds_the_reader_up_is_named(desk: Desk) -> None:
    desk.writers = ("crm", "files")
    desk.refuse(0)
    assert not desk.run()
    small = replace(desk.pipeline().definition, log_bytes_max=100)
    register(desk.hub.backend.store, small)
    (stopped,) = view_pipelines(desk.hub)
    assert not stopped.reader_held
    with desk.hub.backend.hold(hold_name("lake"), "process 7"):
        (view,) = view_pipelines(desk.hub)
        assert (view.reader_held, view.slowest) == (True, "lake/crm")
        assert view.writers[0].behind_bytes > 100
        assert "reader" in {fact.name for fact in explain(desk.hub, "lake/crm").facts}


def test_a_pipeline_whose_log_was_deleted_can_still_be_looked_at(desk: Desk) -> None:
    assert desk.run()
    desk.hub.delete_topic("lake.commits")
    desk.hub.delete_topic("lake.dead-letters")
    (view,) = view_pipelines(desk.hub)
    assert view.writers[0].behind == 0


def test_an_unknown_pipeline_names_the_nearest(desk: Desk) -> None:
    with pytest.raises(InvalidValue, match="none: no pipeline was run here"):
        view_pipelines(desk.hub, "lake")
    assert desk.run()
    with pytest.raises(InvalidValue, match=r"did you mean lake\?"):
        view_pipelines(desk.hub, "lakes")


def commands(explanation: Explanation) -> list[str]:
    return [remedy.command for remedy in explanation.remedies]


def test_a_failed_writer_is_explained_with_position_error_lag_and_what_helps(desk: Desk) -> None:
    desk.fail_at_14()
    found = explain(desk.hub, "lake/crm")
    assert found.waits
    assert found.headline.startswith("FAILED since ")
    assert "at lake.commits/0.0@14 (on_error=stop)" in found.headline
    facts = {fact.name: fact.what for fact in found.facts}
    assert "refused because of 14" in facts["error"]
    assert facts["record"] == 'insert of A (copy): {"n":14}'
    assert facts["behind"].startswith("2 records")
    assert facts["compaction"].startswith("2 records")
    assert commands(found) == [
        "tailrace pipeline log lake --from 14 --to 14 -o json",
        "tailrace pipeline retry lake/crm --one-at-a-time",
        "tailrace pipeline ack lake/crm 14 --reason TEXT",
    ]
    assert found.remedies[-1].outcome == "then 1 follow"


def test_a_sink_that_is_down_is_explained_without_a_record_to_blame(desk: Desk) -> None:
    desk.sink().mkdir()
    (desk.sink() / "down").touch()
    assert not desk.run()
    found = explain(desk.hub, "lake/crm")
    assert commands(found) == ["tailrace pipeline retry lake/crm --one-at-a-time"]


def test_a_writer_is_explained_by_what_its_pipeline_does(desk: Desk) -> None:
    assert desk.run()
    stopped = explain(desk.hub, "lake/crm")
    assert "does not run, nothing waits for it" in stopped.headline
    assert not stopped.waits
    assert commands(stopped) == ["tailrace pipeline run FILE"]
    with desk.hub.backend.hold(hold_name("lake"), "process 7"):
        without = explain(desk.hub, "lake/crm")
        assert "runs without it (process 7)" in without.headline
        books = desk.books()
        books.take()
        books.commit(plan=None, state=books.state.__class__(State.RUNNING, 16))
        assert "caught up (process 7)" in explain(desk.hub, "lake/crm").headline
        desk.hub.topic("lake.commits").push({"n": 16}, key="A")
        assert "1 behind" in explain(desk.hub, "lake/crm").headline


def test_dead_letters_of_a_writer_are_part_of_its_explanation(desk: Desk) -> None:
    desk.options = {"on_error": "park"}
    desk.refuse(3)
    assert desk.run()
    found = explain(desk.hub, "lake/crm")
    assert "tailrace dlq lake/crm list --by error" in commands(found)


@pytest.mark.parametrize("subject", ["lake", "lake.commits/0.0@14", "c7"])
def test_only_writers_can_be_explained(desk: Desk, subject: str) -> None:
    with pytest.raises(InvalidValue, match="PIPELINE/WRITER"):
        explain(desk.hub, subject)


def test_the_log_is_read_from_one_offset_to_another_with_it(desk: Desk) -> None:
    desk.namespaces = ("User", "Order")
    assert desk.run()

    def offsets(start: str, end: str, namespace: str | None = None) -> list[int]:
        found = read_log(desk.hub, "lake", start, end, namespace)
        return [message.offset for some in found for message in some]

    assert offsets("14", "15") == [14, 15]
    assert offsets("-3", "latest") == [13, 14, 15]
    assert offsets("10", "lake.commits/0.0@15", "User") == [10, 12, 14]
    assert offsets("10", "15", "/^Or/") == [11, 13, 15]
    ((first,),) = read_log(desk.hub, "lake", "3", "3", None)
    shown = view_record(first)
    assert (shown.position, shown.mode, shown.op) == ("lake.commits/0.0@3", "copy", "insert")
    assert bytes(shown.value) == b'{"n":3}'


def test_a_trial_shows_rows_as_writers_would_get_them_and_writes_nothing(tmp_path: Path) -> None:
    lake = tailrace.Pipeline("lake", CountingReader(rows=3))
    writer = RecordingWriter(str(tmp_path))
    lake.write("crm", writer, functions=[fn.rename({"n": "number"})])
    lake.write(
        "sql",
        writer,
        functions=[fn.rename({"n": "m"}), fn.sql(select="m * 2 AS d", schema="m LONG")],
    )
    lake.write("none", writer, namespace="other")
    trial = try_pipeline(lake.definition)
    crm, sql, none = trial.writers
    assert [row.document for row in crm.rows] == [{"number": 0}]
    assert ([row.document for row in sql.rows], sql.before_sql) == ([{"m": 0}], True)
    assert (none.rows, none.before_sql) == ((), False)
    assert list(tmp_path.iterdir()) == []


def test_a_trial_names_all_that_cannot_be_reached(tmp_path: Path) -> None:
    lake = tailrace.Pipeline("lake", CountingReader(rows=3))
    for name in ("one", "two"):
        path = tmp_path / "missing" / name
        lake.write(name, writers.sql(f"sqlite:///{path}/{name}.db"), engine="direct")
    with pytest.raises(ConfigError, match=r"writer\.one: .*writer\.two: "):
        try_pipeline(lake.definition)


def test_records_are_counted_by_parts_of_batches(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub") as hub:
        topic = hub.create_topic("orders", partitions=1)
        where = Partition("orders", 0, 0)
        for size in (3, 4, 5):
            topic.push_many([("A", number) for number in range(size)])
        log = hub.backend.log
        assert amount_between(log, where, 0, 12).records == 12
        assert amount_between(log, where, 2, 11).records == 9
        assert amount_between(log, where, 4, 5).records == 1
        assert amount_between(log, where, 5, 5).records == 0


def test_no_pipelines_is_no_error() -> None:
    assert view_pipelines(Hub.from_backend(MemoryBackend())) == []


def test_a_new_writer_whose_beginning_was_compacted_is_refused_and_not_shown(
    tmp_path: Path,
) -> None:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16)
    with open_hub(settings=settings) as hub:
        desk = Desk(hub, tmp_path, rows=6000)
        assert desk.run()
        assert embedded(hub).compact(LOG, lambda: 6000).rewritten
        desk.writers = ("crm", "late", "later")
        with pytest.raises(ConfigError, match="were compacted"):
            desk.run()
        (view,) = view_pipelines(hub)
        assert [writer.name for writer in view.writers] == ["lake/crm"]
        assert list(consumers(hub.backend.store, "lake.commits")) == ["lake/crm"]


def test_a_run_says_that_it_waits_for_spark_before_it_has_writers(desk: Desk) -> None:
    lake = desk.pipeline()
    by_hand = lake.prepare(desk.hub, until=Until.NOW)
    assert Watch(desk.hub, by_hand, {}).look(1.0).starting == "its writers"
    lake.write("big", RecordingWriter(str(desk.sink())), engine="spark")
    on_spark = lake.prepare(desk.hub, until=Until.NOW)
    assert Watch(desk.hub, on_spark, {}).look(1.0).starting == "Spark"
    by_hand.run()
    assert Watch(desk.hub, by_hand, {}).look(2.0).starting is None
