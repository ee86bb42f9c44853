"""Driving a writer while faults happen at the worst instant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace import functions as fn
from tailrace.backend.contract import Transaction
from tailrace.errors import BackendUnavailable
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import SCHEMA, from_records
from tailrace.message import Partition
from tailrace.pipeline.engine.direct import DirectEngine
from tailrace.pipeline.engine.driver import DirectDriver, direct_driver
from tailrace.pipeline.engine.executor import whole_records
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.writer import Staged
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.attempt import CoveredRows, write_batches
from tailrace.pipeline.writing.plan import PlanKind, PlanPart, WritePlan, open_streams
from tailrace.pipeline.writing.plan_engine import PendingPart, PlanRound
from tailrace.testing import MemoryBackend
from tailrace.writers.files.json_lines import FileWriter
from tailrace.writers.sql.writer import SqlWriter
from tests.support.pipelines.recording_writer import RecordingWriter, delivered, deliveries, set_bad
from tests.support.pipelines.writer_bench import WriterBench


class RefusingBackend(MemoryBackend):
    """Refuses commits that append to `refused_topic`; after one to `last_topic`, every commit."""

    refused_topic = ""
    last_topic = ""
    gone = False

    def commit(self, transaction: Transaction) -> list[Any]:
        topics = [where.topic for where, _ in transaction.appends]
        if self.gone or self.refused_topic in topics:
            raise BackendUnavailable("not now")
        landed = super().commit(transaction)
        self.gone = self.last_topic in topics
        return landed


@pytest.fixture
def bench(tmp_path: Path) -> WriterBench:
    hub = Hub.from_backend(RefusingBackend())
    return WriterBench(hub, direct_driver, RecordingWriter(str(tmp_path)))


def test_a_record_whose_dead_letter_cannot_be_stored_is_not_acknowledged(
    bench: WriterBench, tmp_path: Path
) -> None:
    backend = bench.hub.backend
    assert isinstance(backend, RefusingBackend)
    bench.options = {"on_error": "park"}
    bench.append("AAAA")
    set_bad(tmp_path, 2)
    backend.refused_topic = "lake.dead-letters"
    assert bench.run().outage is not None
    assert bench.mark == 2
    backend.refused_topic = ""
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":2}']
    assert bench.mark == 4


def test_a_record_whose_dead_letter_was_stored_last_is_acknowledged(
    bench: WriterBench, tmp_path: Path
) -> None:
    backend = bench.hub.backend
    assert isinstance(backend, RefusingBackend)
    bench.options = {"on_error": "park"}
    bench.append("AAA")
    set_bad(tmp_path, 2)
    backend.last_topic = "lake.dead-letters"
    assert bench.run().outage is not None
    assert bench.mark == 3
    backend.gone = False
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":2}']
    assert delivered(tmp_path) == [0, 1]


@pytest.mark.parametrize("on_error", ["stop", "park"])
def test_a_record_may_be_refused_with_an_error_that_has_surrogates(
    bench: WriterBench, on_error: str
) -> None:
    def refuse(_document: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no file caf\udce9")

    bench.options = {"on_error": on_error, "functions": [fn.python(refuse)]}
    bench.append("A")
    run = bench.run()
    assert run.failed == (on_error == "stop")
    letters = [each.headers["tailrace.error"].decode() for each in bench.dead_letters()]
    (error,) = letters or [run.ledger.state.error or ""]
    assert error.endswith("ValueError: no file caf\\udce9")


def test_letters_follow_their_topic_when_it_is_scaled(bench: WriterBench, tmp_path: Path) -> None:
    bench.options = {"on_error": "park"}
    bench.append("AAAA")
    set_bad(tmp_path, 0, 2)

    def scale_first(document: dict[str, Any]) -> dict[str, Any]:
        if len(bench.dead.storage_topics) == 1:
            bench.dead.scale(2)
        return document

    bench.options["functions"] = [fn.python(scale_first)]
    assert not bench.run().failed
    ends = [end for storage in bench.dead.storage_topics for end in storage.ends]
    assert sum(ends) == 2


def test_partitions_created_between_two_reads_wait_for_the_next_plan(bench: WriterBench) -> None:
    bench.append("AAA")
    ledger = bench.ledger()
    bench.log.scale(2)
    assert [stream.partition for stream in open_streams(bench.log.view, ledger.progress)] == [
        bench.partition
    ]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_commit_log_that_was_created_again_is_delivered_from_its_start(
    bench: WriterBench, tmp_path: Path, start: str
) -> None:
    bench.options = {"start": start}
    bench.append("A" * 10)
    bench.log.scale(2)
    bench.hub.backend.commit(Transaction(((Partition("lake.commits", 1, 0), (_record(10),)),)))
    bench.run()
    delivered = len(deliveries(tmp_path))

    bench.hub.delete_topic("lake.commits")
    bench.log = bench.open_topic("lake.commits")
    bench.append("B" * 5)
    bench.run()
    assert deliveries(tmp_path)[delivered:] == [[0, 1, 2, 3, 4]]

    bench.log.scale(2)
    bench.hub.backend.commit(Transaction(((Partition("lake.commits", 1, 0), (_record(0),)),)))
    bench.run()
    assert deliveries(tmp_path)[delivered + 1 :] == [[0]]


def _record(number: int) -> Record:
    return Record(0, 0, 0, 0, b"A", None, b'{"n":%d}' % number)


def test_the_rest_of_a_plan_killed_while_publishing_is_still_delivered_one_at_a_time(
    tmp_path: Path,
) -> None:
    hub = Hub.from_backend(MemoryBackend())
    bench = WriterBench(hub, direct_driver, FileWriter(path=str(tmp_path / "out")))
    bench.append("A" * 6)
    bench.run()
    bench.append("A" * 6)
    ledger = bench.ledger()
    ledger.take_over()
    parts = (PlanPart(str(bench.partition), 6, 12),)
    done = PlanPart(str(bench.partition), 6, 9)
    staged = Staged(Offsets(6, 9), 0, {"files": []})
    ledger.commit(plan=WritePlan("x-1", PlanKind.SINGLE, parts, (staged,), (done,)))

    bench.start()
    ledger = bench.ledger()
    assert (ledger.state.state, ledger.plan) == (
        WriterStatus.RESUMING,
        WritePlan("x-1", PlanKind.SINGLE, parts),
    )
    assert bench.mark == 9


def test_batches_are_stored_in_the_ledger_before_they_are_published(
    bench: WriterBench, tmp_path: Path
) -> None:
    stored: list[WritePlan | None] = []
    published: list[tuple[Staged, ...]] = []

    class Looking(FileWriter, frozen=True):
        def publish(self, writer: str, staged: Sequence[Staged]) -> None:
            stored.append(bench.ledger().plan)
            published.append(tuple(staged))
            super().publish(writer, staged)

    bench.writer = Looking(path=str(tmp_path / "out"))
    bench.append("AB")
    bench.run()
    (plan,), (staged,) = stored, published
    assert plan is not None
    assert plan.staged == staged != ()
    assert [part.offsets for part in plan.written] == [Offsets(0, 2)]


class _Gathering(DirectEngine):
    """Delivers a record with the offsets before it that have no rows, as Spark does."""

    def one_at_a_time(self, plan_round: PlanRound, part: PendingPart) -> Iterator[CoveredRows]:
        at = part.part.start
        for rows, offsets, _ in super().one_at_a_time(plan_round, part):
            if len(rows):
                yield CoveredRows(rows, Offsets(at, offsets.end))
                at = offsets.end


def _gathering(hub: Hub, *_: object) -> DirectDriver:
    driver = DirectDriver(hub)
    driver.engine = _Gathering(hub)
    return driver


def test_the_failure_names_the_record_that_was_refused(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    bench = WriterBench(hub, _gathering, RecordingWriter(str(tmp_path)))
    bench.options = {"functions": [fn.skip("n", "<", 3)]}
    bench.append("A" * 6)
    set_bad(tmp_path, 3)
    bench.run()
    assert bench.run().ledger.state.position == "lake.commits/0.0@3"
    bench.options["on_error"] = "park"
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":3}']
    assert bench.mark == 6


def _never() -> bool:
    return False


def test_a_sink_stores_the_offsets_without_rows_at_the_end_of_a_plan(
    tmp_path: Path,
) -> None:
    hub = Hub.from_backend(MemoryBackend())
    writer = SqlWriter(url=f"sqlite:///{tmp_path}/crm.db")
    bench = WriterBench(hub, _gathering, writer)
    bench.options = {"functions": [fn.skip("n", ">=", 3)]}
    bench.append("A" * 6)
    ledger = bench.ledger()
    ledger.take_over()
    ledger.commit(plan=WritePlan("x-1", PlanKind.SINGLE, (PlanPart(str(bench.partition), 0, 6),)))
    run = bench.run()
    plan_round, part = (
        run.new_round(run.new_plan(PlanKind.BULK, ())),
        PlanPart(str(bench.partition), 6, 12),
    )
    rows = Rows(from_records([_record(6)._replace(offset=6)]))
    write_batches(
        [CoveredRows(rows, Offsets(6, 7))], part.offsets, run.engine.open(plan_round, part), _never
    )
    held = writer.applied("lake/out", plan_round.stream_of(bench.partition), hub)
    assert held == [Offsets(0, 12)]


def test_an_attempt_that_was_overtaken_parks_nothing(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    url = f"sqlite:///{tmp_path}/crm.db"
    bench = WriterBench(hub, direct_driver, SqlWriter(url=url))

    def overtake_at_two(document: dict[str, Any]) -> dict[str, Any]:
        if document["n"] == 2:
            with sqlite3.connect(tmp_path / "crm.db") as database:
                database.execute("UPDATE tailrace_applied SET epoch = 1000000")
        return document

    bench.options = {"on_error": "park", "functions": [fn.python(overtake_at_two)]}
    bench.append("A" * 4)
    ledger = bench.ledger()
    ledger.take_over()
    ledger.commit(plan=WritePlan("x-1", PlanKind.SINGLE, (PlanPart(str(bench.partition), 0, 4),)))
    assert bench.run().failed
    assert bench.dead_letters() == []


def test_rows_of_one_record_stay_in_one_batch_however_spark_cuts_them() -> None:
    def rows(offsets: Sequence[int]) -> pa.RecordBatch:
        records = [_record(offset)._replace(offset=offset)._asdict() for offset in offsets]
        return pa.RecordBatch.from_pylist(records, schema=SCHEMA)

    batches = [rows([1, 2, 2]), rows([]), rows([2, 2]), rows([2, 3]), rows([4])]
    found: list[list[int]] = [x["offset"].to_numpy().tolist() for x in whole_records(batches)]
    assert [offset for batch in found for offset in batch] == [1, 2, 2, 2, 2, 2, 3, 4]
    assert all(one[-1] < other[0] for one, other in pairwise(found))


def test_a_writer_that_has_failed_keeps_its_reason_and_delivers_nothing_more(
    bench: WriterBench,
) -> None:
    """The threads that drain a writer may meet errors of jobs that its failure has cancelled."""
    bench.append(["orders"])
    run = bench.start()
    run.fail(ValueError("the first"))
    run.fail(ValueError("job cancelled"))
    run.wait_or_fail(ConnectionError("connection closed"))
    run.drain()
    assert bench.state is WriterStatus.FAILED
    stored = repr(bench.ledger().state)
    assert "the first" in stored
    assert "cancelled" not in stored
    assert "closed" not in stored
    assert bench.mark == 0
