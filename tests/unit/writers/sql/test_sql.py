"""The `sql` writer into SQLite, and its errors for databases it cannot use."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import event

from tailrace.errors import BackendUnavailable, ConfigError, InvalidValue
from tailrace.pipeline.offsets import Offsets, intersect_ranges, merge_ranges
from tailrace.pipeline.writer import SinkRefused
from tailrace.writers.sql.database import database_at
from tailrace.writers.sql.writer import SqlWriter
from tests.support.sql_contract import SqlContract
from tests.support.sql_sink import Sink, attempt, insert


class TestSqlite(SqlContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/crm.db"

    @pytest.fixture
    def impatient_url(self, url: str) -> str:
        return f"{url}?timeout=0.1"

    @pytest.fixture
    def bytes_type(self) -> str:
        return "blob"

    def test_nested_values_are_json(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "v": {"a": [1, None]}}), insert({"id": 2, "v": ["x"]}))
        assert [row["v"] for row in sink.rows()] == ['{"a":[1,null]}', '["x"]']

    def test_a_dot_is_part_of_the_name(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}, namespace="public.orders"))
        assert sink.rows("public.orders") == [{"id": 1}]

    def test_columns_are_found_in_any_case(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (ID int PRIMARY KEY, Total int)")
        sink.write(insert({"id": 1, "TOTAL": 2}))
        assert sink.rows(order="ID") == [{"ID": 1, "Total": 2}]
        (failure,) = sink.write(insert({"id": 2, "total": 2, "Total": 3}))
        assert "several fields" in failure.error

    @pytest.mark.parametrize(
        "column", ["NOT NULL", "DEFAULT 5", "CHECK (total < 10)", "REFERENCES other (id)"]
    )
    def test_a_column_that_would_lose_a_constraint_is_not_widened(
        self, sink: Sink, column: str
    ) -> None:
        sink.execute("CREATE TABLE other (id BIGINT PRIMARY KEY)")
        sink.execute(f"CREATE TABLE orders (id int PRIMARY KEY, total BIGINT {column})")
        (failure,) = sink.write(insert({"id": 1, "total": 1.5}))
        assert "total" in failure.error
        assert sink.column_type("total") == "BIGINT"
        sink.offset = 1
        assert sink.write(insert({"id": 1, "total": 1})) == ()

    def test_a_column_with_an_index_is_not_widened_and_others_are(self, sink: Sink) -> None:
        sink.execute("CREATE TABLE orders (id int PRIMARY KEY, total BIGINT, tax BIGINT)")
        sink.execute("CREATE INDEX by_total ON orders (total)")
        (failure,) = sink.write(insert({"id": 1, "total": 1.5}))
        assert "1.5 is not an integer" in failure.error
        assert "change the type of the column" in failure.error
        sink.offset = 1
        assert sink.write(insert({"id": 1, "tax": 1.5})) == ()

    def test_an_integer_beyond_64_bits_is_refused(self, sink: Sink) -> None:
        sink.write(insert({"id": 1}))
        (failure,) = sink.write(insert({"id": 1 << 70}))
        assert "too large" in failure.error

    def test_an_integer_beyond_64_bits_that_comes_first_is_text(self, sink: Sink) -> None:
        sink.write(insert({"id": 1, "hash": 1 << 63}), insert({"id": 2, "hash": 5}))
        assert [row["hash"] for row in sink.rows()] == ["9223372036854775808", "5"]

    def test_written_rows_survive_a_power_loss(self, sink: Sink, tmp_path: Path) -> None:
        sink.write(insert({"id": 1}))
        mode = sqlite3.connect(tmp_path / "crm.db").execute("PRAGMA journal_mode").fetchone()
        assert mode == ("wal",)

    def test_written_rows_are_synced_at_the_end_of_an_attempt(self, url: str) -> None:
        said: list[str] = []
        engine = database_at(url).engine
        event.listen(engine, "connect", lambda driver, _: driver.set_trace_callback(said.append))
        sink = Sink(url)
        session = sink.session()
        sink.write(insert({"id": 1}))
        said.clear()
        session.finish()
        sink.close()
        synced = said[said.index("PRAGMA synchronous=FULL") : said.index("COMMIT")]
        assert any("tailrace_applied" in statement for statement in synced)

    def test_a_file_that_is_no_database_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "crm.db").write_text("hello " * 1000)
        writer = SqlWriter(f"sqlite:///{tmp_path}/crm.db")
        for use in (writer.check, lambda: writer.open(attempt())):
            with pytest.raises(SinkRefused, match=r"crm\.db.* not a database"):
                use()

    def test_the_check_creates_no_file(self, tmp_path: Path) -> None:
        writer = SqlWriter(f"sqlite:///{tmp_path}/crm.db")
        assert "SQLite" in writer.check()
        assert writer.applied_logs("lake/crm", None) == frozenset()
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(BackendUnavailable, match="no directory"):
            SqlWriter(f"sqlite:///{tmp_path}/missing/crm.db").check()

    def test_a_relative_path_starts_at_a_directory(self, tmp_path: Path) -> None:
        writer = SqlWriter("sqlite:///crm.db").resolve_paths(tmp_path)
        assert writer == SqlWriter(f"sqlite:///{tmp_path}/crm.db")
        server = SqlWriter("postgresql://ann:hush@db/shop")
        assert server.resolve_paths(tmp_path) == server


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense:hush", "not the URL of a database"),
        ("postgresql://ann:hush@db:port/shop", "not the URL of a database"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("nobase://ann:hush@db/shop", "does not support"),
        ("postgresql+nodriver://ann:hush@db/shop", "does not know"),
        ("mysql://ann:hush@db/shop", "pip install pymysql"),
        ("postgresql+asyncpg://ann:hush@db/shop", "asyncpg"),
    ],
)
def test_a_url_that_cannot_be_used_is_explained_without_its_password(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        SqlWriter(url).check()
    assert "hush" not in str(raised.value)


def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    writer = SqlWriter("postgresql://ann:hush@127.0.0.1:1/shop")
    for use in (writer.check, lambda: writer.open(attempt())):
        with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:1/shop") as raised:
            use()
        assert raised.value.retryable
        told = "".join([str(raised.value), repr(raised.value), repr(raised.value.__cause__)])
        assert "hush" not in told
        assert "\n" not in told


def test_without_sqlalchemy_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from tailrace.writers.sql.writer import SqlWriter\n"
        "SqlWriter('sqlite:///crm.db').check()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "ConfigError: the sql writer needs SQLAlchemy" in done.stderr
    assert "pip install 'tailrace[sql]'" in done.stderr


def test_its_password_is_not_shown_and_survives_the_way_to_an_executor() -> None:
    writer = SqlWriter("postgresql://ann:hush@db/shop", key=("id",))
    assert "hush" not in repr(writer)
    assert pickle.loads(pickle.dumps(writer)) == writer


@pytest.mark.parametrize("table", ["", "{other}", "{}"])
def test_an_invalid_option_of_the_writer_is_refused(table: str) -> None:
    with pytest.raises(InvalidValue):
        SqlWriter("sqlite:///crm.db", table=table)
    with pytest.raises(InvalidValue, match="nothing, tables, columns"):
        SqlWriter("sqlite:///crm.db", create="all")  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"url": "sqlite:///crm.db", "table": table}, SqlWriter)


@pytest.mark.parametrize(
    ("ranges", "added", "expected"),
    [
        ([], (1, 2), [(1, 2)]),
        ([(0, 2)], (2, 4), [(0, 4)]),
        ([(2, 4)], (0, 2), [(0, 4)]),
        ([(0, 2), (6, 8)], (3, 5), [(0, 2), (3, 5), (6, 8)]),
        ([(0, 2), (3, 4), (6, 8)], (1, 7), [(0, 8)]),
        ([(0, 9)], (3, 4), [(0, 9)]),
        ([(0, 2)], (5, 5), [(0, 2)]),
    ],
)
def test_ranges_are_kept_in_order_and_separate(
    ranges: list[tuple[int, int]], added: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    held = [Offsets(*each) for each in ranges]
    assert [tuple(each) for each in merge_ranges([*held, Offsets(*added)])] == expected
    assert intersect_ranges([Offsets(0, 3), Offsets(5, 9)], Offsets(2, 6)) == [
        Offsets(2, 3),
        Offsets(5, 6),
    ]
