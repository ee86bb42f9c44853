"""The `sql` writer into a real PostgreSQL, and killed writers into every database."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tailrace.errors import BackendUnavailable, OutcomeUnknown
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import SinkRefused
from tailrace.writers.sql.database import database_at
from tailrace.writers.sql.writer import SqlWriter
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.sql_contract import MANY, SqlContract
from tests.support.sql_sink import Sink, attempt, insert, rows_of, update
from tests.support.waiting import until

pytestmark = pytest.mark.part("pipelines")

EXACT = """CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, price numeric(30, 12), at timestamptz,
    local timestamp, day date, uid uuid, doc jsonb, tags text[], grid int[], flag boolean,
    ratio double precision, words varchar(40), raw bytea[])"""
DOCUMENT = {
    "price": "123456789012345678.000000000001",
    "at": "2024-02-29T23:59:59.123456Z",
    "local": "2024-02-29T23:59:59.000001",
    "day": "2024-02-29",
    "uid": "12345678-1234-5678-1234-567812345678",
    "doc": "just text",
    "tags": ["a b", 'q"\\', None, "NULL", "{}", ""],
    "grid": [[1, 2], [3, None]],
    "flag": True,
    "ratio": "NaN",
    "words": 12.50,
    "raw": ["AP8=", None],
}

# One statement sees one instant.
_STATE = """SELECT (SELECT count(*) FROM orders), (SELECT coalesce(max(id), -1) FROM orders),
    (SELECT ranges FROM tailrace_applied)"""


class TestPostgres(SqlContract):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.fixture
    def impatient_url(self, url: str) -> str:
        return f"{url}?options=-c%20lock_timeout%3D100"

    @pytest.fixture
    def bytes_type(self) -> str:
        return "bytea"

    @pytest.mark.parametrize("rows", [1, 2, MANY])
    def test_a_copy_of_a_table_is_exact(self, sink: Sink, rows: int) -> None:
        sink.execute(EXACT)
        sink.write(*(insert({"id": n, **DOCUMENT}) for n in range(rows)))
        found = sink.rows()
        assert [row["id"] for row in found] == list(range(rows))
        row = found[-1]
        assert row["price"] == Decimal("123456789012345678.000000000001")
        assert row["at"] == datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
        assert row["local"] == datetime(2024, 2, 29, 23, 59, 59, 1)
        assert row["day"] == date(2024, 2, 29)
        assert row["uid"] == UUID("12345678-1234-5678-1234-567812345678")
        assert row["doc"] == "just text"
        assert row["tags"] == DOCUMENT["tags"]
        assert row["grid"] == [[1, 2], [3, None]]
        assert row["flag"] is True
        assert row["ratio"] != row["ratio"]
        assert row["words"] == "12.5"
        assert row["raw"] == [b"\0\xff", None]

    @pytest.mark.parametrize("rows", [1, MANY])
    def test_numbers_keep_every_digit(self, sink: Sink, rows: int) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, n numeric, i bigint, t text)")
        value = 0.12345678901234568
        sink.write(*(insert({"id": n, "n": value, "i": 3.0, "t": 1e20}) for n in range(rows)))
        row = sink.rows()[0]
        assert (row["n"], row["i"], row["t"]) == (Decimal(repr(value)), 3, "1e20")

    def test_a_column_of_a_view_is_not_widened(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "total": 1}))
        sink.execute("CREATE VIEW totals AS SELECT total FROM orders")
        (failure,) = sink.write(insert({"id": 2, "total": 1.5}))
        assert "cannot alter type of a column used by a view" in failure.error
        assert sink.rows() == [{"id": 1, "total": 1}]

    def test_columns_that_the_database_numbers_are_updated_around(self, sink: Sink) -> None:
        sink.execute(
            "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " a int, big text NOT NULL)"
        )
        sink.write(insert({"id": 7, "a": 1, "big": "x"}))
        assert sink.write(update({"id": 7, "a": 2})) == ()
        assert sink.rows() == [{"id": 7, "a": 2, "big": "x"}]

    def test_nested_values_are_jsonb(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "v": {"a": [1, None]}}), insert({"id": 2, "v": ["x"]}))
        assert [row["v"] for row in sink.rows()] == [{"a": [1, None]}, ["x"]]

    def test_a_jsonb_column_that_the_writer_did_not_create_holds_any_value(
        self, sink: Sink
    ) -> None:
        sink.execute("CREATE TABLE orders (id bigint PRIMARY KEY, v jsonb)")
        sink.write(*(insert({"id": n, "v": v}) for n, v in enumerate(([1], 5, "x", None))))
        assert [row["v"] for row in sink.rows()] == [[1], 5, "x", None]

    def test_a_namespace_with_a_dot_is_a_table_of_a_schema(self, sink: Sink) -> None:
        sink.write(
            insert({"id": 1}, namespace="public.orders"), insert({"id": 2}, namespace="sales.o.x")
        )
        assert sink.rows() == [{"id": 1}]
        sink.execute('SELECT id FROM sales."o.x"')

    @pytest.mark.parametrize(
        "namespace", ["pg_catalog.pg_authid", "information_schema.x", ".x", "x.", "x" * 64]
    )
    def test_tables_of_the_database_itself_are_refused(self, sink: Sink, namespace: str) -> None:
        (failure,) = sink.write(insert({"id": 1}, namespace=namespace))
        assert "cannot be the name" in failure.error or "is reserved" in failure.error

    def test_a_zero_character_is_refused_alone_and_among_many(self, sink: Sink) -> None:
        (failure,) = sink.write(insert({"id": 1, "v": "a\0b"}))
        assert "NUL" in failure.error
        with pytest.raises(ValueError, match="NUL"):
            sink.write(*(insert({"id": n, "v": "a\0b"}) for n in range(MANY)))

    def test_the_databases_error_for_one_bad_row_among_many_is_reported(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, day date)")
        days = ["2024-02-30" if n == 77 else "2024-02-28" for n in range(MANY)]
        with pytest.raises(ValueError, match=r"2024-02-30.*line 78"):
            sink.write(*(insert({"id": n, "day": day}) for n, day in enumerate(days)))
        assert sink.rows() == []

    def test_a_table_with_a_view_in_front_is_written_through_it(self, unkeyed: Sink) -> None:
        unkeyed.execute("CREATE TABLE base (id int)")
        unkeyed.execute("CREATE VIEW orders AS SELECT id FROM base")
        assert unkeyed.write(insert({"id": 1})) == ()
        assert unkeyed.rows("base") == [{"id": 1}]

    def test_the_check_describes_the_database(self, postgres_url: str) -> None:
        assert "PostgreSQL 1" in SqlWriter(postgres_url).check()
        missing = postgres_url.rpartition("/")[0] + "/missing"
        with pytest.raises(SinkRefused, match='database "missing" does not exist'):
            SqlWriter(missing).check()

    def test_a_lost_connection_is_a_failure_of_the_database(self, sink: Sink, url: str) -> None:
        sink.write(insert({"id": 1}))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'tailrace' AND datname = current_database()"
            )
        with pytest.raises(BackendUnavailable) as raised:
            sink.write(insert({"id": 2}))
        assert raised.value.retryable
        sink.session()
        assert sink.write(insert({"id": 2})) == ()
        assert sink.applied() == [(0, 2)]

    def test_a_commit_whose_answer_is_lost_is_resolved_by_reading_its_range(
        self, sink: Sink
    ) -> None:
        sink.write(insert({"id": 1}))
        sink.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
        )
        sink.execute(
            "CREATE CONSTRAINT TRIGGER die AFTER UPDATE ON orders"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()"
        )
        with pytest.raises(OutcomeUnknown):
            sink.write(update({"id": 1, "v": 2}))
        assert sink.applied() == [(0, 1)]
        assert [tuple(each) for each in sink.session().applied()] == [(0, 1)]

    def test_a_constraint_checked_at_commit_is_a_failure_of_the_row(self, sink: Sink) -> None:
        sink.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, v int UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        )
        sink.write(insert({"id": 1, "v": 1}))
        (failure,) = sink.write(insert({"id": 2, "v": 1}))
        assert "duplicate key value" in failure.error
        assert sink.applied() == [(0, 1)]

    def test_a_paused_attempt_releases_its_locks_before_a_waiting_one_times_out(
        self, url: str
    ) -> None:
        link = database_at(url).connect()
        with link.transaction() as cursor:
            cursor.execute(
                "SELECT current_setting('idle_in_transaction_session_timeout')::interval,"
                " current_setting('lock_timeout')::interval"
            )
            pause, wait = cursor.fetchone()
        link.close()
        assert timedelta(0) < pause < wait

    def test_a_deadlock_is_retried(self, url: str) -> None:
        sink = Sink(f"{url}?options=-c%20deadlock_timeout%3D2s", key=("id",))
        sink.write(insert({"id": 1, "v": 1}), insert({"id": 2, "v": 1}))
        with psycopg.connect(url) as rival, psycopg.connect(url, autocommit=True) as observer:
            rival.execute("SET deadlock_timeout = '10min'")
            rival.execute("UPDATE orders SET v = 3 WHERE id = 2")
            both = (update({"id": 1, "v": 2}), update({"id": 2, "v": 2}))
            writing = threading.Thread(target=sink.write, args=both)
            writing.start()
            _wait_for_a_lock(observer)
            rival.execute("UPDATE orders SET v = 3 WHERE id = 1")
            rival.commit()
            writing.join()
        assert sink.rows() == [{"id": 1, "v": 2}, {"id": 2, "v": 2}]
        assert sink.applied() == [(0, 4)]
        sink.close()

    def test_an_attempt_waits_for_a_running_commit(self, sink: Sink, url: str) -> None:
        """The applied offsets that it finds are final: no older attempt can still commit."""
        sink.write(insert({"id": 1}))
        found: list[Offsets] = []
        with psycopg.connect(url) as older, psycopg.connect(url, autocommit=True) as observer:
            older.execute("UPDATE tailrace_applied SET ranges = '[[0,5]]'")
            opening = threading.Thread(target=lambda: found.extend(sink.session().applied()))
            opening.start()
            _wait_for_a_lock(observer)
            assert found == []
            older.commit()
            opening.join()
        assert found == [Offsets(0, 5)]


def _wait_for_a_lock(observer: psycopg.Connection[Any]) -> None:
    """Wait until a session waits for a lock of this database."""
    waiting = (
        "SELECT 1 FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    until(lambda: observer.execute(waiting).fetchone() is not None, "nobody waits")


def _write_for_ever(report: Report, url: str, number: int, rows: int) -> None:
    """Continue from the applied offsets, in batches of several sizes, until killed."""
    session = SqlWriter(url, key=("id",)).open(attempt(number, end=rows))
    applied = session.applied()
    at = applied[0].end if applied else 0
    report(at)
    while at < rows:
        size = min((1, 7, 150)[at % 3], rows - at)
        changes = [insert({"id": n, "times": n}) for n in range(at, at + size)]
        assert session.write(rows_of(changes, at), Offsets(at, at + size)) == ()
        at += size
        report(at)


@pytest.fixture(params=["sqlite", "postgresql"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/crm.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_a_killed_writer_leaves_rows_and_ranges_that_agree(
    any_url: str, record_evidence: RecordEvidence
) -> None:
    kills = count("sql_kills", test=6, soak=60)
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    sink = Sink(any_url)
    sink.execute("CREATE TABLE orders (id int PRIMARY KEY, times int)")
    violations = []
    for kill in range(kills):
        child = Child(_write_for_ever, any_url, kill + 1, 1 << 30)
        known = child.next_report()
        for reported in child.reports_for(dice.uniform(0.0, 0.3)):
            known = reported
        known = max([known, *child.kill()])
        rows, last, ranges = sink.one(_STATE)
        ranges = json.loads(ranges)
        if not (rows == last + 1 >= known and ranges == ([] if not rows else [[0, rows]])):
            violations.append((kill, known, rows, last, ranges))
    record_evidence(
        "pipelines",
        f"kills of the sql writer into {any_url.partition(':')[0]}",
        kills,
        [seed],
        len(violations),
    )
    assert violations == [], f"seed {seed}"
