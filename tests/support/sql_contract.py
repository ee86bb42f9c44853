"""The guarantees of the `sql` writer on every database, written once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.errors import BackendUnavailable, Fenced
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.transform.rows import RowError
from tailrace.pipeline.writer import SinkRefused, log_identity
from tailrace.writers.sql.errors import RowsRefused
from tailrace.writers.sql.writer import SqlWriter
from tests.support.fitting_cases import CASES, NOT_NESTED, PARTS, REFUSED
from tests.support.sql_sink import (
    STREAM,
    WRITER,
    Change,
    Sink,
    attempt,
    delete,
    insert,
    rows_of,
    update,
)

MANY = 250


class SqlContract:
    """Tests for a database. A subclass provides the fixture `url` of an empty database."""

    @pytest.fixture
    def sink(self, url: str) -> Iterator[Sink]:
        sink = Sink(url, key=("id",))
        yield sink
        sink.close()

    @pytest.fixture
    def unkeyed(self, url: str) -> Iterator[Sink]:
        sink = Sink(url)
        yield sink
        sink.close()

    # Rows

    def test_a_table_is_created_from_the_documents(self, sink: Sink) -> None:
        document = {"id": 1, "name": "ann", "total": 9.5, "paid": True, "gone": None}
        assert sink.write(insert(document)) == ()
        assert sink.rows() == [{"id": 1, "name": "ann", "total": 9.5, "paid": True}]

    @pytest.mark.parametrize("count", [1, 3, MANY])
    def test_rows_are_upserted_by_the_key(self, sink: Sink, count: int) -> None:
        sink.write(*(insert({"id": n, "total": n}) for n in range(count)))
        sink.write(*(update({"id": n, "total": -n}) for n in range(count)))
        assert sink.rows() == [{"id": n, "total": -n} for n in range(count)]

    @pytest.mark.parametrize("count", [1, 3, MANY])
    def test_rows_without_identity_are_all_inserted(self, unkeyed: Sink, count: int) -> None:
        for _ in range(2):
            unkeyed.write(*(insert({"id": n, "text": "x\ty\n\\z"}) for n in range(count)))
        assert [row["id"] for row in unkeyed.rows()] == [n // 2 for n in range(2 * count)]
        assert {row["text"] for row in unkeyed.rows()} == {"x\ty\n\\z"}

    def test_rows_may_bring_their_identity(self, unkeyed: Sink) -> None:
        of = {"a": 1, "b": "x"}
        unkeyed.write(insert({**of, "v": 1}, identity=of), update({**of, "v": 2}, identity=of))
        assert unkeyed.rows(order="a") == [{**of, "v": 2}]
        unkeyed.write(delete({}, identity=of))
        assert unkeyed.rows(order="a") == []

    def test_the_newest_of_a_batch_wins(self, sink: Sink) -> None:
        sink.write(
            insert({"id": 1, "v": "a"}),
            insert({"id": 2, "v": "a"}),
            update({"id": 1, "v": "b"}),
            delete({"id": 2}),
            update({"id": 1, "v": "c"}),
            insert({"id": 3, "v": "a"}),
            delete({"id": 3}),
            insert({"id": 3, "v": "b"}),
        )
        assert sink.rows() == [{"id": 1, "v": "c"}, {"id": 3, "v": "b"}]

    def test_a_row_inserted_after_its_deletion_has_nothing_of_the_old_one(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "a": 1, "b": 1}))
        sink.write(delete({"id": 1}), insert({"id": 1, "a": 2}))
        assert sink.rows() == [{"id": 1, "a": 2, "b": None}]

    def test_fields_that_an_update_lacks_stay_as_they_are(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL)")
        sink.write(insert({"id": 1, "a": 1, "b": 1}), insert({"id": 2, "a": 1, "b": 1}))
        sink.write(update({"id": 1, "a": 2}))
        sink.write(update({"id": 1, "b": 3}), update({"id": 2, "b": 3}), update({"id": 2, "a": 4}))
        assert sink.rows() == [{"id": 1, "a": 2, "b": 3}, {"id": 2, "a": 4, "b": 3}]

    def test_a_row_whose_identity_changes_is_moved(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "a": 1, "b": 1}), insert({"id": 5, "a": 5, "b": 5}))
        sink.write(
            update({"id": 5, "a": 6}),
            update({"id": 2, "a": 2}, identity={"id": 1}),
            update({"id": 2, "b": 3}, identity={"id": 2}),
            insert({"id": 1, "a": 9}),
            update({"id": 8, "a": 8, "b": 8}, identity={"id": 7}),
        )
        assert sink.rows() == [
            {"id": 1, "a": 9, "b": None},
            {"id": 2, "a": 2, "b": 3},
            {"id": 5, "a": 6, "b": 5},
            {"id": 8, "a": 8, "b": 8},
        ]

    def test_tables_without_a_unique_key_are_updated_all_the_same(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int, a int)")
        sink.write(insert({"id": 1, "a": 1}), insert({"id": 2, "a": 2}))
        sink.write(update({"id": 1, "a": 3}), delete({"id": 2}), insert({"id": 3, "a": 3}))
        assert sink.rows() == [{"id": 1, "a": 3}, {"id": 3, "a": 3}]

    def test_a_table_may_be_named_for_all_namespaces(self, url: str) -> None:
        sink = Sink(url, table="all_{name}", key=("id",))
        sink.write(
            insert({"id": 1, "v": 1}, namespace="public.orders"),
            update({"id": 1, "v": 2}, namespace="sales.orders"),
        )
        assert sink.rows("all_orders") == [{"id": 1, "v": 2}]
        sink.close()

    # Tables

    def test_a_column_is_added_with_its_first_value(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}))
        sink.write(insert({"id": 2, "a": None}))
        sink.write(insert({"id": 3, "a": "x"}), insert({"id": 4, "a": None, "b": 1}))
        assert sink.rows() == [
            {"id": 1, "a": None, "b": None},
            {"id": 2, "a": None, "b": None},
            {"id": 3, "a": "x", "b": None},
            {"id": 4, "a": None, "b": 1},
        ]

    def test_only_allowed_tables_and_columns_are_created(self, url: str) -> None:
        nothing = Sink(url, create="nothing")
        (failure,) = nothing.write(insert({"id": 1}))
        assert "no table 'orders'" in failure.error
        nothing.close()
        tables = Sink(url, create="tables")
        assert tables.write(insert({"id": 1})) == ()
        (failure,) = tables.write(insert({"id": 2, "colour": "red"}))
        assert "no column 'colour'" in failure.error
        assert tables.rows() == [{"id": 1}]
        tables.close()

    def test_a_column_of_integers_and_fractions_stores_both(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "v": 1}), insert({"id": 2, "v": 2.5}))
        assert [row["v"] for row in sink.rows()] == [1, 2.5]

    @pytest.mark.parametrize(("first", "second", "kept"), CASES.values(), ids=CASES)
    def test_a_column_holds_what_a_column_of_a_parquet_file_holds(
        self, sink: Sink, first: Any, second: Any, kept: Any
    ) -> None:
        assert sink.write(insert({"id": 1, "v": first})) == ()
        refused = sink.write(insert({"id": 2, "v": second}))
        assert [each.offset for each in refused] == ([1] if kept is REFUSED else [])
        found = {row["id"]: row.get("v") for row in sink.rows()}
        assert found == ({1: first} if kept is REFUSED else {1: first, 2: kept})

    @pytest.mark.parametrize("added", [False, True], ids=["created", "added"])
    @pytest.mark.parametrize(("first", "second"), NOT_NESTED.values(), ids=NOT_NESTED)
    def test_a_column_of_objects_or_arrays_refuses_what_a_parquet_file_refuses(
        self, sink: Sink, first: Any, second: Any, added: bool
    ) -> None:
        if added:
            sink.write(insert({"id": 0}))
        assert sink.write(insert({"id": 1, "v": first})) == ()
        (failure,) = sink.write(insert({"id": 2, "v": second}))
        assert failure.offset == sink.offset - 1
        assert "v" in failure.error
        assert sink.write(insert({"id": 3, "v": None})) == ()
        assert [row["id"] for row in sink.rows()] == [*([0] if added else []), 1, 3]

    @pytest.mark.parametrize("count", [2, MANY])
    def test_a_batch_with_a_number_in_a_column_of_arrays_is_refused(
        self, sink: Sink, count: int
    ) -> None:
        batch = [insert({"id": n, "v": 5 if n == count - 1 else [n]}) for n in range(count)]
        for _ in ("without a column", "with a column"):
            with pytest.raises((RowError, RowsRefused), match="v"):
                sink.write(*batch)
            sink.write(insert({"id": -1, "v": []}))
        assert [row["id"] for row in sink.rows()] == [-1]

    @pytest.mark.parametrize(("first", "second"), PARTS.values(), ids=PARTS)
    def test_the_parts_of_objects_and_arrays_may_have_any_type(
        self, sink: Sink, first: Any, second: Any
    ) -> None:
        assert sink.write(insert({"id": 1, "v": first})) == ()
        assert sink.write(insert({"id": 2, "v": second})) == ()
        found = [row["v"] for row in sink.rows()]
        decoded = [json.loads(each) if isinstance(each, str) else each for each in found]
        assert decoded == [first, second]

    @pytest.mark.parametrize("count", [1, 3, MANY])
    def test_a_fraction_widens_a_column_of_integers(self, sink: Sink, count: int) -> None:
        sink.write(*(insert({"id": n, "total": n, "paid": True}) for n in range(count)))
        changed = [update({"id": n, "total": n + 0.5}) for n in range(count)]
        sink.write(*changed, insert({"id": count, "total": 7}))
        assert [row["total"] for row in sink.rows()] == [*(n + 0.5 for n in range(count)), 7]
        assert sink.column_type("total").startswith("DOUBLE")
        assert {row["paid"] for row in sink.rows()} == {True, None}

    def test_a_column_that_must_not_widen_refuses_a_fraction(self, url: str) -> None:
        tables = Sink(url, key=("id",), create="tables")
        tables.write(insert({"id": 1, "total": 1}))
        (failure,) = tables.write(insert({"id": 2, "total": 1.5}))
        assert "column 'total': 1.5 is not an integer" in failure.error
        assert 'create = "columns"' in failure.error
        tables.close()
        columns = Sink(url, key=("id",))
        columns.offset = 2
        (failure,) = columns.write(insert({"id": 1.5, "total": 1}))
        assert "column 'id': 1.5 is not an integer" in failure.error
        assert columns.column_type("id") == "BIGINT"
        columns.close()

    def test_a_column_of_another_integer_type_is_not_widened(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, total int)")
        (failure,) = sink.write(insert({"id": 1, "total": 1.5}))
        assert "column 'total': 1.5 is not an integer · change the type" in failure.error

    def test_integers_that_would_lose_digits_are_not_widened(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "total": 2**53 + 1}))
        (failure,) = sink.write(insert({"id": 2, "total": 0.5}))
        assert "beyond 2^53" in failure.error
        assert sink.rows() == [{"id": 1, "total": 2**53 + 1}]

    def test_the_first_value_of_a_batch_decides_and_a_misfit_is_named(self, sink: Sink) -> None:
        with pytest.raises(RowError, match="column 'v': \"x\" is text") as raised:
            sink.write(*(insert({"id": n, "v": "x" if n == 2 else n}) for n in range(4)))
        assert raised.value.offset == 2
        assert sink.rows() == []
        assert sink.column_type("v") == "BIGINT"

    def test_tables_that_change_meanwhile_are_inspected_again(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "a": 1}))
        sink.execute("ALTER TABLE orders DROP COLUMN a")
        assert sink.write(insert({"id": 2, "a": 2})) == ()
        sink.execute("ALTER TABLE orders ADD COLUMN b int")
        assert sink.write(insert({"id": 3, "a": 3, "b": 3})) == ()
        sink.execute("DROP TABLE orders")
        assert sink.write(insert({"id": 4, "b": 4})) == ()
        assert sink.rows() == [{"id": 4, "b": 4}]

    def test_concurrent_sessions_create_a_table_once(self, url: str) -> None:
        SqlWriter(url).create_sink()
        failed: list[BaseException] = []

        def work(stream: int) -> None:
            try:
                session = SqlWriter(url, key=("id",)).open(attempt(stream=f"s/0.{stream}"))
                for n in range(5):
                    document = {"id": stream * 10 + n, f"c{n}": n}
                    assert session.write(rows_of([insert(document)], n), Offsets(n, n + 1)) == ()
                session.close()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(stream,)) for stream in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert len(Sink(url).rows()) == 20

    @pytest.mark.parametrize(
        "name",
        ['x"; DROP TABLE orders; --', "a/b", "50% off", "%s", "x'y", "select", "Ünï", " ", "a?b"],
    )
    def test_names_are_never_executed_as_sql(self, sink: Sink, name: str) -> None:
        sink.write(insert({"id": 1}))
        for n in range(2):
            sink.write(insert({"id": 1, name: n}, namespace=name))
        sink.write(*(insert({"id": n, name: n}, namespace=name) for n in range(MANY)))
        sink.write(update({"id": 9999, name: 7}, namespace=name, identity={"id": 1}))
        assert sink.tables() == {"orders", name, "tailrace_applied"}
        assert sink.rows() == [{"id": 1}]
        found = sink.rows(name)
        assert len(found) == MANY
        assert found[-1] == {"id": 9999, name: 7}

    @pytest.mark.parametrize("name", ["", "a\0b", "tailrace_applied", "TAILRACE_APPLIED"])
    def test_an_invalid_table_name_is_refused(self, sink: Sink, name: str) -> None:
        (failure,) = sink.write(insert({"id": 1}, namespace=name))
        assert failure.offset == 0
        assert "name" in failure.error or "tailrace_applied" in failure.error
        with pytest.raises(RowError):
            sink.write(insert({"id": 1}), insert({"id": 1}, namespace=name))
        assert sink.tables() == {"tailrace_applied"}

    def test_an_invalid_column_name_is_refused(self, sink: Sink) -> None:
        (failure,) = sink.write(insert({"id": 1, "": 2}))
        assert "'' cannot be the name of a column" in failure.error

    # Exactly once

    def test_rows_and_offsets_are_stored_together(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}), insert({"id": 2}))
        sink.offset = 5
        sink.write(insert({"id": 3}))
        assert sink.applied() == [(0, 2), (5, 6)]
        sink.offset = 2
        sink.write(insert({"id": 4}), insert({"id": 5}), insert({"id": 6}))
        assert sink.applied() == [(0, 6)]
        assert [tuple(each) for each in sink.session().applied()] == [(0, 6)]

    def test_an_attempt_learns_only_its_own_offsets(self, sink: Sink) -> None:
        sink.write(*(insert({"id": n}) for n in range(10)))
        session = sink.writer.open(attempt(1, epoch=2, end=4))
        assert [tuple(each) for each in session.applied()] == [(0, 4)]
        session.close()

    def test_a_batch_without_rows_is_applied_too(self, sink: Sink) -> None:
        sink.session().write(rows_of([], 0), Offsets(0, 100))
        assert sink.applied() == [(0, 100)]

    def test_an_overtaken_attempt_can_write_nothing(self, sink: Sink) -> None:
        old = sink.session()
        new = sink.session()
        with pytest.raises(Fenced):
            old.write(rows_of([insert({"id": 1})], 0), Offsets(0, 1))
        assert new.write(rows_of([insert({"id": 2})], 0), Offsets(0, 1)) == ()
        assert sink.rows() == [{"id": 2}]
        assert sink.applied() == [(0, 1)]

    @pytest.mark.parametrize(("epoch", "number"), [(1, 9), (2, 4), (2, 5)])
    def test_an_attempt_that_is_not_the_newest_is_refused(
        self, sink: Sink, epoch: int, number: int
    ) -> None:
        sink.writer.open(attempt(5, epoch=2)).close()
        with pytest.raises(Fenced):
            sink.writer.open(attempt(number, epoch=epoch))
        sink.writer.open(attempt(1, epoch=3)).close()

    def test_streams_and_writers_are_independent(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}))
        other = sink.writer.open(attempt(1, stream="another/0.0"))
        assert other.applied() == []
        other.close()
        sink.write(insert({"id": 2}))
        assert sink.applied() == [(0, 2)]

    def test_a_rewound_stream_is_forgotten_from_there_on(self, sink: Sink) -> None:
        assert sink.applied() == []
        sink.write(*(insert({"id": n}) for n in range(10)))
        sink.writer.forget(WRITER, STREAM, 4, None)  # type: ignore[arg-type]
        assert sink.applied() == [(0, 4)]
        sink.write(insert({"id": 10}))
        assert sink.applied() == [(0, 4), (10, 11)]

    def test_the_logs_of_stored_rows_are_named(self, sink: Sink) -> None:
        assert sink.writer.applied_logs(WRITER, None) == frozenset()
        sink.session()
        assert sink.writer.applied_logs(WRITER, None) == frozenset()
        sink.write(insert({"id": 1}))
        other = sink.writer.open(attempt(1, stream="another/0.0"))
        other.write(rows_of([insert({"id": 2})], 0), Offsets(0, 1))
        other.close()
        assert sink.writer.applied_logs(WRITER, None) == {log_identity(STREAM), "another"}
        assert sink.writer.applied_logs(f"{WRITER}-2", None) == frozenset()

    # Failures

    def test_a_refused_batch_leaves_nothing(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v < 10))")
        with pytest.raises(RowsRefused, match="constraint"):
            sink.write(insert({"id": 1, "v": 1}), insert({"id": 2, "v": 99}))
        assert sink.rows() == []
        assert sink.applied() == []
        assert sink.write(insert({"id": 1, "v": 1})) == ()
        (failure,) = sink.write(insert({"id": 2, "v": 99}))
        assert failure.offset == 1
        assert "constraint" in failure.error.lower()
        sink.offset = 2
        assert sink.write(insert({"id": 3, "v": 3})) == ()
        assert [row["id"] for row in sink.rows()] == [1, 3]
        assert sink.applied() == [(0, 1), (2, 3)]

    def test_a_lock_timeout_is_a_failure_of_the_database(self, impatient_url: str) -> None:
        sink = Sink(impatient_url, key=("id",))
        sink.write(insert({"id": 1}))
        with sink.engine.connect() as other:
            if other.dialect.name == "sqlite":
                other.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                other.exec_driver_sql("LOCK TABLE orders")
            with pytest.raises(BackendUnavailable) as raised:
                sink.write(insert({"id": 2}))
            assert raised.value.retryable
        assert sink.write(insert({"id": 2})) == ()
        assert sink.applied() == [(0, 2)]
        sink.close()

    def test_losing_the_table_of_ranges_is_not_a_failure_of_a_row(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}))
        sink.execute("DROP TABLE tailrace_applied")
        with pytest.raises(SinkRefused, match="tailrace_applied"):
            sink.write(insert({"id": 2}))
        assert sink.rows() == [{"id": 1}]
        assert sink.session().applied() == []

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (insert({"v": 1}), "the row has no 'id', which is part of its key"),
            (insert({"id": None}), "the 'id' of the row is null"),
            (insert({"id": [1]}), "the 'id' of the row is nested"),
            (delete({"v": 1}), "the row has no 'id', which is part of its key"),
        ],
    )
    def test_a_row_without_its_identity_is_refused(
        self, sink: Sink, change: Change, said: str
    ) -> None:
        (failure,) = sink.write(change)
        assert said in failure.error
        sink.offset = 1
        with pytest.raises(RowError) as raised:
            sink.write(insert({"id": 1}), change)
        assert raised.value.offset == 2

    def test_a_row_without_a_value_is_refused_and_not_lost(self, unkeyed: Sink) -> None:
        for table in (False, True):
            if table:
                unkeyed.execute("CREATE TABLE orders (id int)")
            (failure,) = unkeyed.write(insert({"a": None}))
            assert "no value for any column" in failure.error
            for document in ({}, {"a": None}):
                with pytest.raises(RowError, match="no value for any column"):
                    unkeyed.write(insert(document), insert(document))

    def test_a_deletion_without_any_identity_is_refused(self, unkeyed: Sink) -> None:
        (failure,) = unkeyed.write(delete({"id": 1}))
        assert "option key" in failure.error

    def test_bytes_come_as_base64(self, sink: Sink, bytes_type: str) -> None:
        sink.execute(f"CREATE TABLE orders (id int PRIMARY KEY, v {bytes_type})")
        sink.write(insert({"id": 1, "v": "AP8="}), insert({"id": 2, "v": None}))
        sink.write(*(insert({"id": n, "v": "AP8="}) for n in range(3, MANY)))
        values: list[Any] = [row["v"] for row in sink.rows()]
        assert values == [b"\0\xff", None, *[b"\0\xff"] * (MANY - 3)]
        (failure,) = sink.write(insert({"id": 0, "v": "?"}))
        assert "column 'v'" in failure.error
        assert "base64" in failure.error
