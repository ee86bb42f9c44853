"""Effects in SQLite, and the addresses of databases."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import ConfigError, EffectsUnavailable, InvalidValue, OutcomeUnknown
from tailrace.hub.opening import open as open_hub
from tailrace.queue.effects.database import TransactionRefused
from tailrace.queue.effects.sql_effects import SqlEffects
from tailrace.queue.effects.sqlite import EffectsConnection
from tailrace.queue.effects.unit import SqlUnitEffects
from tailrace.subscription.worker.effects import Effects, EffectsTransaction
from tests.support.effects_contract import (
    CONSUMER,
    EffectsContract,
    Opens,
    PaidDatabase,
    call,
    origin,
    pay,
)
from tests.support.processes import ended_well, fork
from tests.support.waiting import DEADLINE_S, in_thread


def query(file: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file with the table of a handler."""
    file = tmp_path / "my app.db"
    query(file, "CREATE TABLE paid (id integer PRIMARY KEY)")
    return file


def is_open(file: Path) -> bool:
    """True if this process has the file open."""
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return any(os.path.realpath(link) == str(file) for link in links)


class FaultyConnection(EffectsConnection):
    """A connection whose commits fail on request."""

    before_commit: Callable[[], None] | None = None
    after_commit: Callable[[], None] | None = None

    def cursor(self, *_: Any) -> FaultyCursor:  # type: ignore[override]
        return FaultyCursor(self)


class FaultyCursor(sqlite3.Cursor):
    def execute(self, statement: str, values: Any = (), /) -> FaultyCursor:
        assert isinstance(self.connection, FaultyConnection)
        if not statement.startswith("COMMIT"):
            super().execute(statement, values)
            return self
        if self.connection.before_commit is not None:
            self.connection.before_commit()
        super().execute(statement, values)
        if self.connection.after_commit is not None:
            self.connection.after_commit()
        return self


def lose(file: Path | None = None) -> None:
    """Fail as a disk does, and lose the file if it is given."""
    if file is not None:
        file.rename(file.with_suffix(".lost"))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    raise error


class TestSqlite(EffectsContract):
    @pytest.fixture
    def database(self, file: Path) -> PaidDatabase:
        return PaidDatabase(f"sqlite:///{file}", partial(query, file))

    @pytest.fixture
    def faulty(self, file: Path, opens: Opens) -> SqlUnitEffects:
        """A unit whose connections are of the faulty class."""
        connect = partial(sqlite3.connect, file, check_same_thread=False, factory=FaultyConnection)

        def connect_existing() -> sqlite3.Connection:
            if not file.exists():
                raise FileNotFoundError(file)
            return connect()

        return opens(connect_existing, outcome_timeout_s=0.3).take_over(CONSUMER, "0.3", 5)

    def test_a_commit_whose_answer_is_lost_is_recognised_as_stored(
        self, database: PaidDatabase, faulty: SqlUnitEffects
    ) -> None:
        transaction = faulty.begin()
        pay(transaction, 1)
        transaction.connection.after_commit = lose
        transaction.commit([origin(1)])
        assert faulty.stored(origin(1))
        call(faulty, 2)
        assert database.paid() == [1, 2]

    def test_a_commit_that_was_lost_is_raised_and_can_be_repeated(
        self, database: PaidDatabase, faulty: SqlUnitEffects
    ) -> None:
        transaction = faulty.begin()
        pay(transaction, 1)
        transaction.connection.before_commit = lose
        with pytest.raises(EffectsUnavailable, match=r"my app\.db .*disk I/O error"):
            transaction.commit([origin(1)])
        assert not faulty.stored(origin(1))
        assert database.paid() == []
        call(faulty, 2)
        call(faulty, 1)
        assert database.paid() == [1, 2]

    def test_a_commit_that_the_database_refuses_is_raised_as_it_is(
        self, file: Path, database: PaidDatabase, opens: Opens
    ) -> None:
        database.query("CREATE TABLE item (id REFERENCES paid DEFERRABLE INITIALLY DEFERRED)")

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(file, check_same_thread=False)
            connection.execute("PRAGMA foreign_keys = ON")
            return connection

        unit = opens(connect).take_over(CONSUMER, "0.3", 5)
        transaction = unit.begin()
        transaction.connection.execute("INSERT INTO item VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            transaction.commit([origin(1)])
        assert not unit.stored(origin(1))
        assert database.query("SELECT * FROM item") == []
        call(unit, 1)
        assert database.paid() == [1]

    @pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
    def test_an_outcome_that_cannot_be_read_is_unknown(
        self, file: Path, faulty: SqlUnitEffects, moment: str
    ) -> None:
        transaction = faulty.begin()
        pay(transaction, 1)
        setattr(transaction.connection, moment, partial(lose, file))
        with pytest.raises(OutcomeUnknown, match=r"unit 0\.3 of subscription:payments#1 .*may"):
            transaction.commit([origin(1)])
        file.with_suffix(".lost").rename(file)
        with pytest.raises(OutcomeUnknown):
            call(faulty, 2)
        stored = moment == "after_commit"
        assert query(file, "SELECT id FROM paid") == ([(1,)] if stored else [])
        assert SqlEffects(file).take_over(CONSUMER, "0.3", 6).stored(origin(1)) is stored

    def test_an_interrupted_commit_ends_the_unit(self, faulty: SqlUnitEffects) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        transaction = faulty.begin()
        transaction.connection.after_commit = interrupt
        with pytest.raises(KeyboardInterrupt):
            transaction.commit([origin(1)])
        with pytest.raises(OutcomeUnknown):
            call(faulty, 2)

    @pytest.mark.parametrize("statement", ["COMMIT", "commit;", "ROLLBACK", "END", "BEGIN"])
    def test_statements_that_end_the_transaction_are_not_authorised(
        self, database: PaidDatabase, unit: SqlUnitEffects, statement: str
    ) -> None:
        call(unit, 1)
        transaction = unit.begin()
        pay(transaction, 2)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            transaction.connection.execute(statement)
        assert database.paid() == [1]
        transaction.commit([origin(2)])
        assert database.paid() == [1, 2]

    def test_a_script_is_refused_because_it_commits(self, unit: SqlUnitEffects) -> None:
        transaction = unit.begin()
        with pytest.raises(TransactionRefused, match="executescript"):
            transaction.connection.executescript("SELECT 1")
        transaction.rollback()

    def test_the_connection_of_a_function_may_not_be_committed_either(
        self, file: Path, database: PaidDatabase, opens: Opens
    ) -> None:
        connect = partial(sqlite3.connect, file, check_same_thread=False)
        unit = opens(connect).take_over(CONSUMER, "0.3", 5)
        transaction = unit.begin()
        pay(transaction, 1)
        for end in (transaction.connection.commit, transaction.connection.rollback):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                end()
        transaction.commit([origin(1)])
        assert database.paid() == [1]

    def test_a_handler_may_use_savepoints_and_any_row_factory(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        transaction.connection.row_factory = lambda cursor, row: {"row": row}
        transaction.connection.execute("SAVEPOINT one")
        pay(transaction, 1)
        transaction.connection.execute("ROLLBACK TO one")
        transaction.connection.execute("RELEASE one")
        pay(transaction, 2)
        transaction.commit([origin(1), origin(2)])
        assert database.paid() == [2]

    def test_a_call_waits_for_the_other_calls_of_its_process_without_a_limit(
        self, file: Path, opens: Opens
    ) -> None:
        unit = opens(file, busy_timeout_s=0.01).take_over(CONSUMER, "0.3", 5)
        first, begun = unit.begin(), list[EffectsTransaction]()
        waiting = in_thread(lambda: begun.append(unit.begin()))
        time.sleep(0.1)  # longer than it waits for other processes
        assert begun == []
        first.rollback()
        waiting.join(DEADLINE_S)
        begun[0].rollback()

    def test_a_takeover_or_another_process_is_waited_for_with_a_limit(
        self, file: Path, opens: Opens
    ) -> None:
        effects = opens(file, busy_timeout_s=0.05)
        unit = effects.take_over(CONSUMER, "0.3", 5)
        first = unit.begin()
        with pytest.raises(EffectsUnavailable, match=r"another call .* for 0\.05 s"):
            effects.take_over(CONSUMER, "0.4", 6)
        first.rollback()
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EffectsUnavailable, match="another process"):
            unit.begin()
        other.close()
        call(unit, 1)

    def test_a_forked_child_keeps_no_inherited_connection(
        self, file: Path, unit: SqlUnitEffects
    ) -> None:
        call(unit, 1)
        assert is_open(file)

        def work() -> None:
            assert not is_open(file)

        assert ended_well(fork(work))
        assert is_open(file)

    def test_a_missing_database_is_named_and_not_created(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing.db"
        effects = SqlEffects(missing)
        with pytest.raises(EffectsUnavailable, match="the file does not exist") as raised:
            effects.take_over(CONSUMER, "0.3", 5)
        assert raised.value.database == f"sqlite:///{missing}"
        with pytest.raises(EffectsUnavailable):
            effects.check(tmp_path)
        assert not missing.exists()

    def test_a_failing_function_is_named(self) -> None:
        def no_connection() -> sqlite3.Connection:
            raise ConnectionRefusedError("nobody listens")

        effects: Effects = SqlEffects(no_connection)
        with pytest.raises(EffectsUnavailable, match=r"no_connection\(\).*nobody listens"):
            effects.take_over(CONSUMER, "0.3", 5)


def test_the_database_of_a_hub_is_refused(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    open_hub(hub).close()
    link = tmp_path / "app.db"
    os.symlink(hub / "hub.db", link)
    before = (hub / "hub.db").read_bytes()
    for target in (hub / "hub.db", link, partial(sqlite3.connect, link)):
        with pytest.raises(InvalidValue, match="database of a hub"):
            SqlEffects(target).check(tmp_path / "other")
        with pytest.raises(InvalidValue, match="database of a hub"):
            SqlEffects(target).take_over(CONSUMER, "0.3", 5)
    assert (hub / "hub.db").read_bytes() == before


def test_a_file_that_is_to_become_the_database_of_the_hub_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="database of a hub"):
        SqlEffects(tmp_path / "hub.db").check(tmp_path)


def test_a_check_creates_the_tables(file: Path, tmp_path: Path) -> None:
    SqlEffects(file).check(tmp_path)
    names = {name for (name,) in query(file, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {"paid", "tailrace_owners", "tailrace_effects"}


@pytest.mark.parametrize(
    "target",
    [
        "postgresql://shop:secret@db.example:5433/orders?sslmode=require",
        "postgres://shop:secret@db.example:5433/orders",
        "postgresql+psycopg://shop:secret@db.example:5433/orders",
        "host=db.example port=5433 dbname=orders user=shop password=secret",
    ],
)
def test_the_password_is_not_shown(target: str) -> None:
    assert repr(SqlEffects(target)) == "SqlEffects('postgresql://db.example:5433/orders')"


@pytest.mark.parametrize(
    "target",
    [
        "mysql://shop:secret@db/orders",
        "sqlite://",
        "sqlite:///:memory:",
        ":memory:",
        "sqlite:///app.db?mode=ro",
        "",
    ],
)
def test_an_address_that_is_not_valid_is_refused_without_its_password(target: str) -> None:
    with pytest.raises(InvalidValue, match=r"postgresql://user") as raised:
        SqlEffects(target)
    assert "secret" not in str(raised.value)


def test_a_dsn_that_is_not_valid_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as raised:
        SqlEffects("host=db password='secret")
    assert "secret" not in str(raised.value)


def test_a_function_that_returns_something_else_is_refused() -> None:
    with pytest.raises(InvalidValue, match="returned a dict"):
        SqlEffects(dict).take_over(CONSUMER, "0.3", 5)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'tailrace\[postgres\]'"):
        SqlEffects("postgresql://db/orders")


@pytest.mark.parametrize("option", ["idle_in_transaction_s", "busy_timeout_s", "outcome_timeout_s"])
def test_a_timeout_that_is_not_positive_is_refused(option: str) -> None:
    with pytest.raises(InvalidValue, match=option):
        SqlEffects("app.db", **{option: 0.0})
