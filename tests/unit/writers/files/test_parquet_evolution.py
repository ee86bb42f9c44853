"""Parquet: rows that evolve at random, in batches of any size, over restarts and deaths."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.driver import direct_driver
from tailrace.testing import MemoryBackend
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.parquet_readers import check_documents
from tests.support.pipelines.dying_parquet import Died, DyingParquet, Fuse, Point
from tests.support.pipelines.evolving_table import Step, numbered, write_steps
from tests.support.pipelines.writer_bench import WriterBench

pytestmark = [pytest.mark.part("pipelines"), pytest.mark.timeout(3600)]

EXAMPLES = count("evolving tables", test=25, soak=1000)

scalars = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -7, 2**53, 2**53 + 1, 2**63 - 1, 2**63]),
    st.sampled_from([0.5, 3.0, -2.25, 1e300]),
    st.booleans(),
    st.sampled_from(["x", "", "7", "0.5", "007", "true", "2026-01-02T03:04:05Z", "{}"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pq"), inner, max_size=2)
    ),
    max_leaves=4,
)
documents = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
steps = st.lists(
    st.builds(Step, st.lists(documents, min_size=1, max_size=5), st.none() | st.integers(0, 40)),
    min_size=1,
    max_size=6,
)


@pytest.fixture(autouse=True)
def fuse() -> Iterator[Fuse]:
    """Return the fuse of the writer, which does not burn."""
    fuse = DyingParquet.fuse
    fuse.left, fuse.operations = None, 0
    yield fuse
    fuse.left = fuse.point = None


def written(directory: Path, steps: list[Step], batch_rows: int, *, meta: bool = True) -> set[int]:
    """Write the documents to a new table; return the refused ones."""
    hub = Hub.from_backend(MemoryBackend())
    return write_steps(hub, direct_driver, directory, steps, batch_rows=batch_rows, meta=meta)


def test_every_reader_finds_exactly_the_rows_of_an_evolving_table(
    record_evidence: RecordEvidence,
) -> None:
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(steps=steps, meta=st.booleans())
    def check(steps: list[Step], meta: bool) -> None:
        refused = []
        for batch_rows in (4, 1):
            with tempfile.TemporaryDirectory() as directory:
                found = written(Path(directory), steps, batch_rows, meta=meta)
                kept = [row for row in numbered(steps) if row["id"] not in found]
                if kept:
                    check_documents(Path(directory, "orders"), kept)
                refused.append(found)
        # The rows that are refused do not depend on the size of a batch.
        assert refused[0] == refused[1]

    check()
    record_evidence("pipelines", "evolving Parquet tables", EXAMPLES, [], 0)


@pytest.mark.parametrize("point", [Point("create", "rewriting"), Point("move", ".parquet")])
def test_a_death_while_files_without_a_recorded_schema_are_unified_is_completed(
    tmp_path: Path, fuse: Fuse, point: Point
) -> None:
    """Files of an earlier version, or of a table whose record was deleted."""
    out = tmp_path / "out"
    hub = Hub.from_backend(MemoryBackend())
    bench = WriterBench(hub, direct_driver, DyingParquet(str(out), meta=False))
    for document in ({"id": 0, "a": 1}, {"id": 1, "b": "x"}):
        bench.append_documents([document])
        bench.run()
    first = min((out / "orders").glob("*.parquet"))
    pq.write_table(pq.read_table(first).select(["id", "a"]), first)
    shutil.rmtree(out / "_tailrace" / "schema")
    fuse.point = point
    with pytest.raises(Died):
        bench.run()
    fuse.point = None
    assert pq.read_schema(first).names == ["id", "a"]
    assert not bench.run().failed
    check_documents(out / "orders", [{"id": 0, "a": 1}, {"id": 1, "b": "x"}])


STEPS = [
    Step([{"a": 1}, {"a": 2}]),
    Step([{"b": {"p": 1}}]),
    Step([{"a": 0.5, "b": {"q": []}}, {"a": "text"}]),
    Step([{"a": 4, "b": {"q": [1]}}]),
]


def test_a_death_at_any_operation_leaves_a_table_that_the_next_run_completes(
    tmp_path: Path, fuse: Fuse
) -> None:
    kept = [row for row in numbered(STEPS) if row.get("a") != "text"]
    written(tmp_path / "whole", STEPS, 10)
    check_documents(tmp_path / "whole" / "orders", kept)
    total = fuse.operations
    assert total > 40
    for number in range(len(STEPS)):
        for dies_after in range(0, total // 2, count("operations between deaths", test=3, soak=1)):
            out = tmp_path / f"{number}-{dies_after}"
            steps = list(STEPS)
            steps[number] = Step(STEPS[number].documents, dies_after)
            assert written(out, steps, 10) == {4}
            check_documents(out / "orders", kept, ["pyarrow", "polars", "duckdb"])
            assert not list(out.rglob("*.staged"))
