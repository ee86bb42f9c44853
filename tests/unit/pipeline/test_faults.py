"""Driving a writer while something goes wrong at the worst moment."""

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
from tailrace.hub import Hub
from tailrace.log.record import Record
from tailrace.log.schema import SCHEMA, from_records
from tailrace.message import Partition
from tailrace.pipeline.books import State
from tailrace.pipeline.deliver import Covered, deliver
from tailrace.pipeline.driving import DirectDriver, drive_directly
from tailrace.pipeline.engine import Assignment, DirectEngine, Work
from tailrace.pipeline.executing import whole_records
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.plan import Part, Plan, PlanKind, open_streams
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.writer import Staged
from tailrace.testing import MemoryBackend
from tailrace.writers.file import FileWriter
from tailrace.writers.sql import SqlWriter
from tests.pipelines.bench import Bench
from tests.pipelines.recording import RecordingWriter, delivered, deliveries, set_bad


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
def bench(tmp_path: Path) -> Bench:
    hub = Hub.from_backend(RefusingBackend())
    return Bench(hub, drive_directly, RecordingWriter(str(tmp_path)))


def test_a_record_whose_letter_cannot_be_stored_is_not_acknowledged(
    bench: Bench, tmp_path: Path
) -> None:
    backend = bench.hub.backend
    assert isinstance(backend, RefusingBackend)
    bench.options = {"on_error": "park"}
    bench.append("AAAA")
    set_bad(tmp_path, 2)
    backend.refused_topic = "lake.dead-letters"
    assert bench.run().failed
    assert bench.mark == 2
    backend.refused_topic = ""
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":2}']
    assert bench.mark == 4


def test_a_record_whose_letter_was_the_last_that_was_stored_is_acknowledged(
    bench: Bench, tmp_path: Path
) -> None:
    backend = bench.hub.backend
    assert isinstance(backend, RefusingBackend)
    bench.options = {"on_error": "park"}
    bench.append("AAA")
    set_bad(tmp_path, 2)
    backend.last_topic = "lake.dead-letters"
    assert bench.run().failed
    assert bench.mark == 3
    backend.gone = False
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":2}']
    assert delivered(tmp_path) == [0, 1]


def test_letters_follow_their_topic_when_it_is_scaled(bench: Bench, tmp_path: Path) -> None:
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


def test_partitions_that_come_between_two_looks_wait_for_the_next(bench: Bench) -> None:
    bench.append("AAA")
    books = bench.books()
    bench.log.scale(2)
    assert [stream.partition for stream in open_streams(bench.log.view, books.progress)] == [
        bench.partition
    ]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_commit_log_that_was_made_again_is_delivered_from_its_beginning(
    bench: Bench, tmp_path: Path, start: str
) -> None:
    bench.options = {"start": start}
    bench.append("A" * 10)
    bench.log.scale(2)
    bench.hub.backend.commit(Transaction(((Partition("lake.commits", 1, 0), (_record(10),)),)))
    bench.run()
    delivered = len(deliveries(tmp_path))

    bench.hub.delete_topic("lake.commits")
    bench.log = bench.hub.create_topic("lake.commits", partitions=1)
    bench.append("B" * 5)
    bench.run()
    assert deliveries(tmp_path)[delivered:] == [[0, 1, 2, 3, 4]]

    bench.log.scale(2)
    bench.hub.backend.commit(Transaction(((Partition("lake.commits", 1, 0), (_record(0),)),)))
    bench.run()
    assert deliveries(tmp_path)[delivered + 1 :] == [[0]]


def _record(number: int) -> Record:
    return Record(0, 0, 0, 0, b"A", None, b'{"n":%d}' % number)


def test_what_is_left_of_a_plan_killed_while_publishing_still_comes_one_at_a_time(
    tmp_path: Path,
) -> None:
    hub = Hub.from_backend(MemoryBackend())
    bench = Bench(hub, drive_directly, FileWriter(path=str(tmp_path / "out")))
    bench.append("A" * 6)
    bench.run()
    bench.append("A" * 6)
    books = bench.books()
    books.take()
    parts = (Part(str(bench.partition), 6, 12),)
    done = Part(str(bench.partition), 6, 9)
    staged = Staged(Offsets(6, 9), 0, {"files": []})
    books.commit(plan=Plan("x-1", PlanKind.SINGLE, parts, (staged,), (done,)))

    bench.start()
    books = bench.books()
    assert (books.state.state, books.plan) == (
        State.RESUMING,
        Plan("x-1", PlanKind.SINGLE, parts),
    )
    assert bench.mark == 9


def test_what_is_published_was_decided_and_stored_before(bench: Bench, tmp_path: Path) -> None:
    stored: list[Plan | None] = []
    published: list[tuple[Staged, ...]] = []

    class Looking(FileWriter, frozen=True):
        def publish(self, writer: str, staged: Sequence[Staged]) -> None:
            stored.append(bench.books().plan)
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
    """Gives a record together with the offsets before it that have no rows, as Spark does."""

    def singly(self, work: Work, part: Assignment) -> Iterator[Covered]:
        at = part.part.start
        for rows, offsets in super().singly(work, part):
            if len(rows):
                yield Covered(rows, Offsets(at, offsets.end))
                at = offsets.end


def _gathering(hub: Hub, *_: object) -> DirectDriver:
    driver = DirectDriver(hub)
    driver.engine = _Gathering(hub)
    return driver


def test_the_record_that_is_blamed_is_the_one_that_was_refused(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    bench = Bench(hub, _gathering, RecordingWriter(str(tmp_path)))
    bench.options = {"functions": [fn.skip("n", "<", 3)]}
    bench.append("A" * 6)
    set_bad(tmp_path, 3)
    bench.run()
    assert bench.run().books.state.position == "lake.commits/0.0@3"
    bench.options["on_error"] = "park"
    assert not bench.run().failed
    assert [letter.data for letter in bench.dead_letters()] == [b'{"n":3}']
    assert bench.mark == 6


def _never() -> bool:
    return False


def test_a_sinks_record_has_the_offsets_at_the_end_of_a_plan_that_have_no_rows(
    tmp_path: Path,
) -> None:
    hub = Hub.from_backend(MemoryBackend())
    writer = SqlWriter(url=f"sqlite:///{tmp_path}/crm.db")
    bench = Bench(hub, _gathering, writer)
    bench.options = {"functions": [fn.skip("n", ">=", 3)]}
    bench.append("A" * 6)
    books = bench.books()
    books.take()
    books.commit(plan=Plan("x-1", PlanKind.SINGLE, (Part(str(bench.partition), 0, 6),)))
    run = bench.run()
    work, part = run.work(run.new_plan(PlanKind.BULK, ())), Part(str(bench.partition), 6, 12)
    rows = Rows(from_records([_record(6)._replace(offset=6)]))
    deliver([Covered(rows, Offsets(6, 7))], part.offsets, run.engine.open(work, part), _never)
    held = writer.applied("lake/out", work.stream_of(bench.partition), hub)
    assert held == [Offsets(0, 12)]


def test_an_attempt_that_was_overtaken_parks_nothing(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    url = f"sqlite:///{tmp_path}/crm.db"
    bench = Bench(hub, drive_directly, SqlWriter(url=url))

    def overtake_at_two(document: dict[str, Any]) -> dict[str, Any]:
        if document["n"] == 2:
            with sqlite3.connect(tmp_path / "crm.db") as database:
                database.execute("UPDATE tailrace_applied SET epoch = 1000000")
        return document

    bench.options = {"on_error": "park", "functions": [fn.python(overtake_at_two)]}
    bench.append("A" * 4)
    books = bench.books()
    books.take()
    books.commit(plan=Plan("x-1", PlanKind.SINGLE, (Part(str(bench.partition), 0, 4),)))
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
