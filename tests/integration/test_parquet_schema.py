"""Parquet tables that evolve: drivers that are killed, and tasks that decide in parallel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.driver import direct_driver
from tailrace.pipeline.engine.run_session import RunSession
from tailrace.pipeline.engine.spark_driver import spark_drivers
from tailrace.pipeline.writing import plan
from tailrace.testing import MemoryBackend
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.parquet_readers import check_documents
from tests.support.pipelines.dying_parquet import DyingParquet, Point, kill_process
from tests.support.pipelines.evolving_table import Step, numbered, write_steps
from tests.support.pipelines.writer_bench import WriterBench
from tests.support.processes import Child, Report

pytestmark = [pytest.mark.part("pipelines"), pytest.mark.timeout(3600)]

ROWS: list[list[dict[str, Any]]] = [
    [{"id": 0, "a": 1}],
    [{"id": 1, "b": "x"}],
    [{"id": 2, "a": 0.5, "b": "y"}],
]

POINTS = {
    "the plan is sealed": Point("create", "schema.json"),
    "the wider schema is written": Point("move", "schema.json"),
    "the wider schema is recorded": Point("create", "rewriting"),
    "the first file is rewritten": Point("move", "000000000000-000000000001.parquet"),
    "the first file is replaced": Point("create", "rewriting", 2),
    "all files are replaced": Point("create", "schema.json", 2),
    "the table is recorded as rewritten": Point("move", "000000000002-000000000003.parquet"),
    "the new file is published": Point("remove", "staged"),
}
"""Operations of a run that widens a table of two files. It dies when it has got this far."""


def _bench(hub: Hub, out: Path) -> WriterBench:
    return WriterBench(hub, direct_driver, DyingParquet(str(out)))


def _widen_and_die(report: Report, directory: Path, point: Point) -> None:
    with tailrace.open(directory / "hub") as hub:
        bench = _bench(hub, directory / "out")
        DyingParquet.fuse.point, DyingParquet.fuse.die = point, kill_process
        bench.run()
    report("survived")


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_a_kill_at_each_point_of_a_rewriting_leaves_a_table_that_the_next_start_completes(
    tmp_path: Path, point: Point
) -> None:
    out = tmp_path / "out"
    with tailrace.open(tmp_path / "hub") as hub:
        bench = _bench(hub, out)
        for documents in ROWS[:2]:
            bench.append_documents(documents)
            bench.run()
        bench.append_documents(ROWS[2])
    child = Child(_widen_and_die, tmp_path, point)
    assert list(child.rest()) == []
    assert child.exit_code == -9
    with tailrace.open(tmp_path / "hub") as hub:
        assert not _bench(hub, out).run().failed
    check_documents(out / "orders", [row for some in ROWS for row in some])
    assert not list(out.rglob("*.staged"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with tailrace.open(tmp_path / "hub") as hub:
        yield hub


@pytest.mark.xdist_group("spark")
def test_tasks_that_decide_differently_about_a_column_are_unified(
    hub: Hub, spark: SparkSession, tmp_path: Path
) -> None:
    """The second task finds text first. The first task has the lower offsets, so it decides."""
    rows = 2 * plan.PIECE_ROWS + 1000
    bad = {plan.PIECE_ROWS + 600, plan.PIECE_ROWS + 700, rows - 1}
    documents: list[dict[str, Any]] = [
        {"a": "n/a" if n in bad else n if n < rows // 2 else n + 0.5} for n in range(rows)
    ]
    documents[rows // 2 + 1] = {"b": {"c": [1]}}
    steps = [Step(documents)]
    refused = write_steps(
        hub, spark_drivers(RunSession(lambda: spark)), tmp_path / "out", steps, batch_rows=rows
    )
    assert refused == bad
    kept = [row for row in numbered(steps) if row["id"] not in bad]
    check_documents(tmp_path / "out" / "orders", kept)


VALUES: list[Any] = [None, 1, 2, -7, 2**60, 0.5, 3.0, True, "x", "7", [], [1], [0.5], ["y"]]
VALUES += [{}, {"p": 1}, {"p": 0.5, "q": "z"}, {"q": None}, [{"p": 1}], [{"q": []}]]


def _random_steps(chance: random.Random) -> list[Step]:
    return [
        Step(
            [
                {name: chance.choice(VALUES) for name in "abc" if chance.random() < 0.6}
                for _ in range(chance.randint(4, 12))
            ],
            chance.choice([None, None, chance.randrange(40)]),
        )
        for _ in range(3)
    ]


@pytest.mark.xdist_group("spark")
def test_spark_writes_the_same_table_as_one_record_after_the_other(
    hub: Hub,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_evidence: RecordEvidence,
) -> None:
    monkeypatch.setattr(plan, "PIECE_ROWS", 2)
    tables, seed = count("evolving tables on Spark", test=2, soak=40), random.randrange(2**32)
    chance = random.Random(seed)
    wrong = []
    for number in range(tables):
        steps = _random_steps(chance)
        with tailrace.open(tmp_path / f"hub-{number}") as spark_hub:
            out = tmp_path / f"spark-{number}"
            refused = write_steps(
                spark_hub, spark_drivers(RunSession(lambda: spark)), out, steps, batch_rows=100
            )
        memory = Hub.from_backend(MemoryBackend())
        alone = tmp_path / f"direct-{number}"
        expected = write_steps(memory, direct_driver, alone, steps, batch_rows=1)
        kept = [row for row in numbered(steps) if row["id"] not in expected]
        try:
            assert refused == expected
            check_documents(out / "orders", kept)
            check_documents(alone / "orders", kept)
        except AssertionError as error:
            wrong.append(f"table {number}: {error}")
    what = "evolving Parquet tables on Spark"
    record_evidence("pipelines", what, tables, [seed], len(wrong))
    assert wrong == [], f"seed {seed}"
