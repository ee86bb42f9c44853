"""Parquet: one schema for each table, read as a whole by every reader with its defaults."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace import writers
from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.pipeline.engine.driver import direct_driver
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Staged
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.testing import MemoryBackend
from tests.support.parquet_readers import READERS, check_documents, read_all
from tests.support.pipelines.dying_parquet import DyingParquet, Point, raise_died
from tests.support.pipelines.writer_bench import WriterBench
from tests.unit.writers.contract import WRITER, Driver, record, rows_of
from tests.unit.writers.files.test_json_lines import put_store, visible


@pytest.fixture
def hub() -> Hub:
    return Hub.from_backend(MemoryBackend())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def bench(hub: Hub, out: Path, on_error: str = "stop", **options: Any) -> WriterBench:
    return WriterBench(
        hub, direct_driver, writers.parquet(str(out), **options), {"on_error": on_error}
    )


def written(hub: Hub, out: Path, documents: list[dict[str, Any]], **options: Any) -> Path:
    """Write each document in a plan, and so in a file, of its own; return the table."""
    b = bench(hub, out, **options)
    for number, document in enumerate(documents):
        b.append_documents([{"id": number, **document}])
        run = b.run()
        assert not run.failed, run.ledger.state
    return out / "orders"


EVOLVING = {
    "integers, then a fraction": [{"total": 5}, {"total": 7.5}],
    "null at first": [{"total": None}, {"total": 5}],
    "a new column": [{}, {"note": "x"}, {"paid": True}],
    "a column that comes and goes": [{"a": 1}, {}, {"a": 2}],
    "an object with a new field": [{"o": {"a": 1}}, {"o": {"b": "x"}}, {"o": {"a": 1.5}}],
    "an empty object at first": [{"o": {}}, {"o": None}, {"o": {"a": {"b": 1}}}],
    "an empty list at first": [{"l": []}, {"l": None}, {"l": [1]}, {"l": [0.5]}],
    "a list of wider objects": [
        {"l": [{"a": 1}]},
        {"l": [{"b": "x"}, {"a": None}, {}]},
        {"l": [{"a": 0.5, "c": [1]}]},
    ],
    "a field in another order": [{"l": [{"a": 1, "b": 2}]}, {"l": [{"b": 4, "c": 0, "a": 3}]}],
    "null within an object": [{"o": {"a": None}}, {"o": {"a": [1]}}],
    "anything in a text column": [{"t": "x"}, {"t": 5}, {"t": {"a": 1}}, {"t": [1, "x"]}],
    "large integers": [{"n": 5}, {"n": 2**62}, {"n": -(2**63)}],
}


@pytest.mark.parametrize("documents", EVOLVING.values(), ids=EVOLVING)
@pytest.mark.parametrize("meta", [True, False])
def test_every_reader_reads_the_whole_table_after_its_schema_widened(
    hub: Hub, out: Path, documents: list[dict[str, Any]], meta: bool
) -> None:
    table = written(hub, out, documents, meta=meta)
    assert len(visible(out)) == len(documents)
    check_documents(table, [{"id": n, **each} for n, each in enumerate(documents)])
    schemas = {str(pq.read_schema(path)) for path in visible(out)}
    assert len(schemas) == 1


def test_a_table_in_an_object_store_is_rewritten_too(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_store(tmp_path, monkeypatch)
    b = WriterBench(hub, direct_driver, writers.parquet("s3://bucket/out"))
    documents: list[dict[str, Any]] = [{"id": 0, "a": 1}, {"id": 1, "a": 0.5}]
    documents.append({"id": 2, "b": [{"c": 1}]})
    for document in documents:
        b.append_documents([document])
        assert not b.run().failed
    check_documents(tmp_path / "out" / "orders", documents)
    assert not list((tmp_path / "out" / "_tailrace").rglob("*.staged"))


@pytest.mark.parametrize("reader", READERS)
def test_a_fraction_after_integers_is_read_exactly(hub: Hub, out: Path, reader: str) -> None:
    table = written(hub, out, [{"total": 5}, {"total": 7.5}])
    assert sorted(row["total"] for row in READERS[reader](table)) == [5, 7.5]


def test_text_in_a_numeric_column_stops_the_writer_at_its_row(hub: Hub, out: Path) -> None:
    b = bench(hub, out)
    b.append_documents([{"id": 0, "total": 5}])
    assert not b.run().failed
    b.append_documents([{"id": 1, "total": 6}, {"id": 2, "total": "n/a"}, {"id": 3, "total": 7}])
    assert b.run().failed
    state = b.ledger().state
    assert state.position == "lake.commits/0.0@2"
    assert state.error is not None
    assert "field 'total': \"n/a\" is text, and the column holds integers" in state.error
    kept = {0: 5, 1: 6, 3: 7}
    check_documents(out / "orders", [{"id": n, "total": total} for n, total in kept.items()])


def test_text_in_a_numeric_column_is_parked_and_the_other_rows_are_written(
    hub: Hub, out: Path
) -> None:
    b = bench(hub, out, on_error="park")
    b.append_documents([{"id": 0, "total": 5}])
    b.run()
    b.append_documents([{"id": 1, "total": 6}, {"id": 2, "total": "n/a"}, {"id": 3, "total": 7.5}])
    b.run()
    assert b.state is WriterStatus.STOPPED
    assert [letter.value["id"] for letter in b.dead_letters()] == [2]
    kept = {0: 5, 1: 6, 3: 7.5}
    check_documents(out / "orders", [{"id": n, "total": total} for n, total in kept.items()])


def test_the_first_rows_decide_about_parts_that_were_staged_in_parallel(
    hub: Hub, out: Path
) -> None:
    d = Driver(hub, writers.parquet(str(out), meta=False))

    def stage(offset: int, *values: Any) -> Staged:
        given = [record(offset + n, {"id": offset + n, "a": v}) for n, v in enumerate(values)]
        session = d.writer.open(d.attempt(offset, offset + len(given)))
        assert not session.write(rows_of(given), d.attempt(offset, offset + len(given)).offsets)
        [staged] = session.finish()
        return staged

    parts = [stage(0, 1, 2), stage(2, 0.5), stage(3, "x", "4"), stage(5, None), stage(6, 2**60)]
    unified = d.writer.unify(WRITER, parts)
    assert [each is not None for each in unified] == [True, True, False, True, False]
    d.writer.publish(WRITER, [each for each in unified if each is not None])
    check_documents(
        out / "orders",
        [{"id": 0, "a": 1}, {"id": 1, "a": 2}, {"id": 2, "a": 0.5}, {"id": 5}],
    )
    refused = d.write(
        rows_of([record(3, {"id": 3, "a": "x"}), record(4, {"id": 4, "a": "4"})]), 3, 5
    )
    assert [each.offset for each in refused] == [3]


def test_rows_of_several_tables_widen_each_on_its_own(hub: Hub, out: Path) -> None:
    b = bench(hub, out)
    for number, value in enumerate([1, 0.5]):
        b.append_documents([{"id": number, "v": value}], "orders")
        b.append_documents([{"id": number, "v": f"x{value}"}], "users")
        assert not b.run().failed
    check_documents(out / "orders", [{"id": 0, "v": 1}, {"id": 1, "v": 0.5}])
    check_documents(out / "users", [{"id": 0, "v": "x1"}, {"id": 1, "v": "x0.5"}])


def test_all_namespaces_in_one_directory_are_one_table(hub: Hub, out: Path) -> None:
    b = bench(hub, out, layout="")
    b.append_documents([{"id": 0, "a": 1}], "orders")
    b.append_documents([{"id": 1, "b": "x"}], "users")
    assert not b.run().failed
    b.append_documents([{"id": 2, "a": 0.5}], "orders")
    assert not b.run().failed
    for reader in ("pandas", "pyarrow", "polars glob", "duckdb"):
        assert sorted(row["id"] for row in READERS[reader](out)) == [0, 1, 2]


def test_files_that_are_not_published_are_not_read_by_a_glob(hub: Hub, out: Path) -> None:
    d = Driver(hub, writers.parquet(str(out)))
    d.deliver(0, 10)
    d.deliver(10, 20, "plan-2")
    d.writer.forget(WRITER, d.attempt(0, 1).stream, 10, hub)
    d.stage(10, 20, "plan-3")
    for reader in ("pandas", "pyarrow", "polars glob", "duckdb"):
        assert sorted(row["id"] for row in READERS[reader](out)) == list(range(10)), reader


def test_a_table_that_was_rewound_to_its_start_gets_new_types(hub: Hub, out: Path) -> None:
    d = Driver(hub, writers.parquet(str(out), meta=False))
    assert not d.write(rows_of([record(0, {"id": 0, "a": "x"})]), 0, 1)
    d.writer.forget(WRITER, d.attempt(0, 1).stream, 0, hub)
    assert not d.write(rows_of([record(0, {"id": 0, "a": 1})]), 0, 1)
    [path] = visible(out)
    assert pq.read_schema(path).field("a").type == pa.int64()


def test_a_declared_type_widens_the_files_that_were_there(hub: Hub, out: Path) -> None:
    written(hub, out, [{"total": 5}, {"note": "x"}])
    b = bench(hub, out, schema={"total": "double", "extra": "json"})
    b.append_documents([{"id": 2, "total": 7.5, "extra": [1, "x"]}])
    assert not b.run().failed
    check_documents(
        out / "orders",
        [
            {"id": 0, "total": 5},
            {"id": 1, "note": "x"},
            {"id": 2, "total": 7.5, "extra": '[1,"x"]'},
        ],
    )


def test_a_declared_type_that_the_files_cannot_have_is_refused(hub: Hub, out: Path) -> None:
    written(hub, out, [{"total": "five"}])
    b = bench(hub, out, schema={"total": "double"})
    b.append_documents([{"id": 1, "total": 7.5}])
    assert b.run().failed
    error = b.ledger().state.error
    assert error is not None
    assert "'total' as double, but the files of the table have text in it" in error


def test_a_declared_type_stays_when_it_is_no_longer_declared(hub: Hub, out: Path) -> None:
    written(hub, out, [{"day": "2026-01-02"}], schema={"day": "date"})
    b = bench(hub, out)
    b.append_documents([{"id": 1, "day": "2026-01-03"}])
    assert not b.run().failed
    assert {str(pq.read_schema(path).field("day").type) for path in visible(out)} == {"date32[day]"}


def test_files_of_an_earlier_version_get_one_schema_at_the_next_start(hub: Hub, out: Path) -> None:
    """Earlier versions typed each file by its own rows, and recorded no schema."""
    older = [
        {"id": [0], "a": [5], "m": [5], "o": [{"x": 1}]},
        {"id": [1], "a": [7.5], "m": ["text"], "l": [[1]]},
        {"id": [2], "l": [[{"y": 2}]]},
    ]
    directory = out / "orders"
    directory.mkdir(parents=True)
    for number, columns in enumerate(older):
        name = f"lake~out-0123456789abcdef~0.0-{number:012d}-{number + 1:012d}.parquet"
        pq.write_table(pa.table(columns), directory / name)
    b = bench(hub, out, meta=False)
    b.run()
    check_documents(
        directory,
        [
            {"id": 0, "a": 5, "m": "5", "o": {"x": 1}},
            {"id": 1, "a": 7.5, "m": "text", "l": "[1]"},
            {"id": 2, "l": '[{"y":2}]'},
        ],
    )


def test_a_plan_that_an_earlier_version_sealed_is_published_in_one_schema(
    hub: Hub, out: Path
) -> None:
    d = Driver(hub, writers.parquet(str(out), meta=False))
    d.deliver(0, 1)
    staged = out / "_tailrace/staged/lake~out/plan-9/part.parquet"
    staged.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1.5], "customer": ["c1"], "new": [1]}), staged)
    name = "orders/lake~out-0123456789abcdef~0.0-000000000001-000000000002.parquet"
    files = [{"source": str(staged.relative_to(out)), "target": name}]
    d.writer.publish(WRITER, [Staged(Offsets(1, 2), 1, {"files": files})])
    expected = [{"id": 0, "customer": "c0"}, {"id": 1.5, "customer": "c1", "new": 1}]
    check_documents(out / "orders", expected)


@pytest.mark.parametrize("point", [None, Point("create", "rewriting")], ids=["before", "amid"])
def test_a_driver_that_was_overtaken_while_it_rewrote_narrows_nothing(
    hub: Hub, out: Path, point: Point | None
) -> None:
    def staged(d: Driver, offset: int, document: dict[str, Any]) -> Sequence[Staged]:
        session = d.writer.open(d.attempt(offset, offset + 1))
        assert not session.write(rows_of([record(offset, document)]), Offsets(offset, offset + 1))
        return d.unified(session.finish())

    def overtake() -> None:
        fuse.point = None
        newer.writer.publish(WRITER, plan)
        newer.publish(staged(newer, 2, {"id": 2, "a": 0.5, "b": 1, "c": "x"}))

    fuse = DyingParquet.fuse
    older = Driver(hub, DyingParquet(str(out), meta=False))
    newer = Driver(hub, writers.parquet(str(out), meta=False))
    older.publish(staged(older, 0, {"id": 0, "a": 1}))
    plan = staged(older, 1, {"id": 1, "a": 2, "b": 1})
    if point is None:
        overtake()
    fuse.point, fuse.die = point, overtake
    try:
        with pytest.raises(Error, match="another process has changed the schema"):
            older.writer.publish(WRITER, plan)
    finally:
        fuse.point, fuse.die = None, raise_died
    newer.writer.begin(WRITER, None)
    check_documents(
        out / "orders",
        [{"id": 0, "a": 1}, {"id": 1, "a": 2, "b": 1}, {"id": 2, "a": 0.5, "b": 1, "c": "x"}],
    )


def test_a_damaged_file_is_named_and_nothing_is_published(hub: Hub, out: Path) -> None:
    [path] = [*written(hub, out, [{"a": 1}]).iterdir()]
    path.write_bytes(b"not a Parquet file")
    b = bench(hub, out)
    b.append_documents([{"id": 1, "a": 0.5}])
    assert b.run().failed
    error = b.ledger().state.error
    assert error is not None
    assert f"orders/{path.name} in {out} is not a Parquet file" in error
    path.unlink()
    assert not b.run().failed
    check_documents(out / "orders", [{"id": 1, "a": 0.5}])


def test_times_and_bytes_of_a_function_have_their_own_types(hub: Hub, out: Path) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    values = {"at": at, "day": at.date(), "data": b"hi", "price": Decimal("1.50"), "o": {"at": at}}
    d = Driver(hub, writers.parquet(str(out), meta=False))
    for offset in range(2):
        given = rows_of([record(offset)]).with_documents([{"id": offset, **values}])
        assert not d.write(given, offset, offset + 1)
    expected = {**values, "price": "1.50", "o": {"at": "2026-01-02T03:04:05Z"}}
    for path in visible(out):
        [row] = pq.read_table(path).drop_columns(["id"]).to_pylist()
        assert row == expected


def test_a_record_that_was_deleted_is_found_again_from_the_files(hub: Hub, out: Path) -> None:
    written(hub, out, [{"a": 1, "n": 2**60}, {"a": 0.5, "n": 1}])
    before = (out / "_tailrace/schema/lake~out/orders/schema.json").read_bytes()
    shutil.rmtree(out / "_tailrace")
    b = bench(hub, out)
    b.run()
    assert (out / "_tailrace/schema/lake~out/orders/schema.json").read_bytes() == before


def test_a_wider_schema_changes_no_other_file_of_the_directory(hub: Hub, out: Path) -> None:
    table = written(hub, out, [{"a": 1}])
    other = table / "other-0123456789abcdef~0.0-000000000000-000000000001.parquet"
    pq.write_table(pa.table({"id": [9], "a": [2]}), other)
    stat = os.stat(other)
    b = bench(hub, out)
    b.append_documents([{"id": 1, "a": 0.5}])
    assert not b.run().failed
    assert os.stat(other) == stat


def test_a_row_without_any_value_is_refused_and_not_lost(hub: Hub, out: Path) -> None:
    d = Driver(hub, writers.parquet(str(out), meta=False))
    [refused] = d.write(rows_of([record(0, {"a": None})]), 0, 1)
    assert (refused.offset, refused.error) == (0, "it has no value for any column")
    assert not d.write(rows_of([record(1, {"a": 1}), record(2, {"a": None})]), 1, 3)
    assert not d.write(rows_of([record(3, {}), record(4, {})]), 3, 5)
    assert read_all(out / "orders")["pyarrow"] == [{"a": 1}, {}, {}, {}]


def test_a_table_keeps_the_columns_of_its_records(hub: Hub, out: Path) -> None:
    d = Driver(hub, writers.parquet(str(out)))
    d.deliver(0, 1)
    without = Driver(hub, writers.parquet(str(out), meta=False))
    assert not without.write(rows_of([record(1)]), 1, 2)
    [refused] = without.write(rows_of([record(2, {"id": 2, "_op": "x"})]), 2, 3)
    assert "'_op' is reserved" in refused.error
    found = READERS["duckdb"](out / "orders")
    assert sorted((row["id"], row["_op"]) for row in found) == [(0, "insert"), (1, None)]


def test_text_of_a_number_has_the_declared_type(hub: Hub, out: Path) -> None:
    """As CSV files have it."""
    kinds = {"a": "int32", "b": "double", "c": "bool", "d": "string"}
    d = Driver(hub, writers.parquet(str(out), schema=kinds, meta=False))
    given: list[dict[str, Any]] = [{"a": "7", "b": "0.5", "c": "true", "d": 5}]
    given += [{"a": "n/a"}, {"a": "3000000000"}]
    refused = d.write(rows_of(record(n, each) for n, each in enumerate(given)), 0, 3)
    assert [each.offset for each in refused] == [1, 2]
    [path] = visible(out)
    assert pq.read_table(path).to_pylist() == [{"a": 7, "b": 0.5, "c": True, "d": "5"}]
