"""Driving a writer: redelivery, failures, and resuming one at a time, on the direct engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace import functions as fn
from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.driver import direct_driver
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.plan import PlanKind, PlanPart, WritePlan
from tailrace.testing import MemoryBackend
from tailrace.topic.consumers import low_water
from tests.support.pipelines.recording_writer import RecordingWriter, delivered, deliveries, set_bad
from tests.support.pipelines.writer_bench import WriterBench

LARGE = 400 << 10
"""One read returns two records of this size."""


@pytest.fixture
def bench(tmp_path: Path) -> WriterBench:
    hub = Hub.from_backend(MemoryBackend())
    return WriterBench(hub, direct_driver, RecordingWriter(str(tmp_path)))


def test_appended_records_are_delivered_in_bulk_and_acknowledged(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("AABBAABBCACBAACB")
    bench.run()
    assert deliveries(tmp_path) == [list(range(16))]
    assert bench.mark == 16
    assert bench.ledger().plan is None


def test_unacknowledged_records_are_redelivered(bench: WriterBench, tmp_path: Path) -> None:
    bench.append("AABBAABBCACBAACB")
    bench.acknowledge(*range(13))
    bench.run()
    assert deliveries(tmp_path) == [[13, 14, 15]]


def test_a_failed_batch_is_redelivered_one_at_a_time(bench: WriterBench, tmp_path: Path) -> None:
    bench.append("A" * 16)
    bench.acknowledge(*range(9))
    set_bad(tmp_path, 14)
    assert bench.run().failed
    assert deliveries(tmp_path) == []
    assert (bench.mark, bench.state) == (9, WriterStatus.FAILED)

    assert bench.run().failed
    assert deliveries(tmp_path) == [[9], [10], [11], [12], [13]]
    assert bench.mark == 14
    assert bench.ledger().state.position == "lake.commits/0.0@14"

    set_bad(tmp_path)
    assert not bench.run().failed
    assert deliveries(tmp_path)[5:] == [[14], [15]]
    bench.append("AA")
    bench.run()
    assert deliveries(tmp_path)[7:] == [[16, 17]]


def test_records_that_were_not_tried_when_a_batch_failed_are_delivered_in_bulk(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("A" * 6, LARGE)
    set_bad(tmp_path, 1)
    assert bench.run().failed
    set_bad(tmp_path)
    assert not bench.run().failed
    assert deliveries(tmp_path) == [[0], [1], [2, 3], [4, 5]]


def test_a_hole_below_acknowledged_records_is_redelivered(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("A" * 17 + "AABBAABBCAC")
    bench.acknowledge(*range(24), 25, 26, 27)
    bench.run()
    assert deliveries(tmp_path) == [[24]]
    assert bench.mark == 28


def test_only_the_holes_between_acknowledged_records_are_redelivered(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("A" * 28)
    bench.acknowledge(*range(24), 25, 27)
    bench.run()
    assert deliveries(tmp_path) == [[24, 26]]
    assert bench.mark == 28


def test_only_the_records_that_the_sink_names_are_redelivered(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend())
    bench = WriterBench(hub, direct_driver, RecordingWriter(str(tmp_path), partial=True))
    bench.append("A" * 1000)
    set_bad(tmp_path, 5, 500, 999)
    run = bench.run()
    assert sum(map(len, deliveries(tmp_path))) == 997
    error = run.ledger.state.error or ""
    assert run.ledger.state.position == "lake.commits/0.0@5"
    assert "3 records" in error
    assert "lake.commits/0.0@500, lake.commits/0.0@999" in error

    set_bad(tmp_path)
    bench.run()
    flat = [offset for call in deliveries(tmp_path) for offset in call]
    assert sorted(flat) == list(range(1000))
    assert flat[997:] == [5, 500, 999]


def test_a_parked_record_leaves_a_dead_letter_and_the_others_are_delivered(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.options = {"on_error": "park", "batch_rows": 50}
    bench.append("A" * 200)
    set_bad(tmp_path, 7, 8, 120)
    run = bench.run()
    assert not run.failed
    flat = [offset for call in deliveries(tmp_path) for offset in call]
    assert sorted(flat) == sorted(set(range(200)) - {7, 8, 120})
    assert bench.mark == 200
    assert bench.ledger().state.parked == 3
    letters = bench.dead_letters()
    assert [letter.headers["tailrace.position"] for letter in letters] == [
        b"lake.commits/0.0@7",
        b"lake.commits/0.0@8",
        b"lake.commits/0.0@120",
    ]
    assert letters[0].data == b'{"n":7}'
    assert b"refused because of 7" in letters[0].headers["tailrace.error"]
    assert {letter.headers["tailrace.writer"] for letter in letters} == {b"lake/out"}


def test_a_sink_that_is_down_parks_nothing(bench: WriterBench, tmp_path: Path) -> None:
    bench.options = {"on_error": "park"}
    bench.append("A" * 10)
    (tmp_path / "down").touch()
    assert bench.run().outage is not None
    assert bench.run().outage is not None
    assert bench.dead_letters() == []
    (tmp_path / "down").unlink()
    assert not bench.run().failed
    assert sorted(offset for call in deliveries(tmp_path) for offset in call) == list(range(10))


def test_records_that_functions_drop_are_acknowledged_too(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("A" * 10_000)
    bench.options = {"functions": [fn.skip("n", ">=", 5000)]}
    bench.run()
    assert sum(map(len, deliveries(tmp_path))) == 5000
    assert bench.mark == 10_000


def test_batches_that_functions_drop_whole_are_acknowledged_with_their_plan(
    bench: WriterBench, tmp_path: Path
) -> None:
    seen: set[int] = set()

    def only_the_first(document: dict[str, Any]) -> dict[str, Any] | None:
        number = document["n"]
        if number in seen:
            raise ValueError("it comes again")
        seen.add(number)
        return document if number == 0 else None

    bench.append("A" * 6, LARGE)
    bench.options = {"functions": [fn.python(only_the_first)]}
    assert not bench.run().failed
    assert delivered(tmp_path) == [0]
    assert bench.mark == 6


def test_a_stop_between_two_batches_of_a_plan_acknowledges_only_what_was_written(
    bench: WriterBench, tmp_path: Path
) -> None:
    def stop(document: dict[str, Any]) -> dict[str, Any]:
        run.stopping.set()
        return document

    bench.append("A" * 6, LARGE)
    bench.options = {"functions": [fn.python(stop)]}
    run = bench.start()
    run.drain()
    run.end()
    assert delivered(tmp_path) == [0, 1]
    assert bench.mark == 2
    bench.options = {}
    bench.run()
    assert delivered(tmp_path) == list(range(6))


def test_a_function_that_fails_names_its_record(bench: WriterBench, tmp_path: Path) -> None:
    bench.append("AAAA")
    bench.options = {"functions": [fn.python(_fails_at_two)]}
    bench.run()
    run = bench.run()
    assert run.ledger.state.position == "lake.commits/0.0@2"
    assert "two" in (run.ledger.state.error or "")
    assert deliveries(tmp_path) == [[0], [1]]


def _fails_at_two(document: dict[str, Any]) -> dict[str, Any]:
    if document["n"] == 2:
        raise ValueError("two")
    return document


def test_a_writer_added_later_may_start_at_the_latest_record(
    bench: WriterBench, tmp_path: Path
) -> None:
    bench.append("A" * 5)
    bench.options = {"start": "latest"}
    bench.run()
    bench.append("A" * 2)
    bench.run()
    assert deliveries(tmp_path) == [[5, 6]]


def test_compaction_waits_for_a_writer_that_starts_at_the_latest_record(bench: WriterBench) -> None:
    bench.append("A" * 5)
    bench.options = {"start": "latest"}
    bench.start()
    bench.append("A" * 5)
    assert low_water(bench.hub.backend, bench.partition) == ("lake/out", 5)


def test_plans_have_at_most_batch_rows_records(bench: WriterBench, tmp_path: Path) -> None:
    bench.options = {"batch_rows": 3}
    bench.append("A" * 8)
    bench.run()
    assert deliveries(tmp_path) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_an_open_plan_is_finished_unchanged(bench: WriterBench, tmp_path: Path) -> None:
    bench.append("A" * 4)
    ledger = bench.ledger()
    ledger.take_over()
    parts = (PlanPart("lake.commits/0.0", 0, 2),)
    ledger.commit(plan=WritePlan("1-1", PlanKind.BULK, parts))
    bench.run()
    assert deliveries(tmp_path) == [[0, 1], [2, 3]]


def test_gaps_as_wide_as_an_incarnation_are_crossed_at_once(tmp_path: Path) -> None:
    hub = Hub.from_backend(MemoryBackend(gap_every=1))
    bench = WriterBench(hub, direct_driver, RecordingWriter(str(tmp_path)), {"batch_rows": 1})
    for _ in range(3):
        bench.append("A")
    bench.run()
    assert len(deliveries(tmp_path)) == 3
