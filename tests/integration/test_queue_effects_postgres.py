"""Effects in a real PostgreSQL: lost answers, late commits, stopped owners, restarts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from tailrace.errors import EffectsUnavailable, Fenced, OutcomeUnknown
from tailrace.queue.effects.database import TransactionRefused
from tailrace.queue.effects.postgres import CREATE_TABLES
from tailrace.queue.effects.sql_effects import SqlEffects
from tailrace.queue.effects.unit import SqlUnitEffects
from tests.support.effects_contract import (
    CONSUMER,
    EffectsContract,
    Opens,
    PaidDatabase,
    call,
    origin,
    pay,
)
from tests.support.processes import Child, Report, Stopped, await_stop, continued_after
from tests.support.servers.cut_network import Cut, CutNetwork, cut_network
from tests.support.servers.postgres import OwnPostgres
from tests.support.waiting import in_thread, until


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return [] if cursor.description is None else cursor.fetchall()


def paid_database(url: str) -> PaidDatabase:
    query(url, "CREATE TABLE paid (id bigint PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
    return PaidDatabase(url, partial(query, url))


def hold_commits(database: PaidDatabase, then: str) -> None:
    """Let the commit of payment 1 wait while `held_commits`, and run a statement afterwards.

    The commit waits in a deferred trigger, with the lock of the owner's row.
    """
    database.query(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF NEW.id = 1 THEN"
        f" PERFORM pg_advisory_xact_lock(1); {then}; END IF; RETURN NULL; END$$"
    )
    database.query(
        "CREATE CONSTRAINT TRIGGER held AFTER INSERT ON paid DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION hold()"
    )


@contextmanager
def held_commits(database: PaidDatabase) -> Iterator[None]:
    with psycopg.connect(database.target) as blocker:
        blocker.execute("SELECT pg_advisory_xact_lock(1)")
        yield


def sessions(database: PaidDatabase, condition: str) -> int:
    """The number of other sessions in the database that meet a condition."""
    ((count,),) = database.query(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        f" AND pid <> pg_backend_pid() AND {condition}"
    )
    return int(count)


def pay_and_wait(report: Report, target: str, id: int) -> None:
    """Take a unit over, write as a handler does, stop, and commit when continued."""
    unit = SqlEffects(target).take_over(CONSUMER, "0.3", 5)
    transaction = unit.begin()
    pay(transaction, id)
    report(Stopped("before the commit", os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        transaction.commit([origin(id)])
    except Fenced:
        report("fenced")
    else:
        report("committed")


class TestPostgres(EffectsContract):
    @pytest.fixture
    def database(self, postgres_url: str) -> PaidDatabase:
        return paid_database(postgres_url)

    @pytest.fixture
    def network(self, postgres_port: int) -> Iterator[CutNetwork]:
        with cut_network(postgres_port) as network:
            yield network

    @pytest.fixture
    def distant(self, database: PaidDatabase, network: CutNetwork, opens: Opens) -> SqlUnitEffects:
        """A unit behind a network that can be cut."""
        target = (
            f"postgresql://postgres@127.0.0.1:{network.port}/{database.target.rpartition('/')[2]}"
        )
        return opens(target, outcome_timeout_s=0.5).take_over(CONSUMER, "0.3", 5)

    def test_a_commit_whose_answer_is_lost_is_recognised_as_stored(
        self, database: PaidDatabase, network: CutNetwork, distant: SqlUnitEffects
    ) -> None:
        network.cut = Cut.ANSWER
        call(distant, 1)
        assert network.cut is Cut.NOTHING
        assert distant.stored(origin(1))
        call(distant, 2)
        assert database.paid() == [1, 2]

    def test_a_commit_that_was_lost_is_raised_and_can_be_repeated(
        self, database: PaidDatabase, network: CutNetwork, distant: SqlUnitEffects
    ) -> None:
        network.cut = Cut.MESSAGE
        with pytest.raises(EffectsUnavailable, match=rf"postgresql://127\.0\.0\.1:{network.port}/"):
            call(distant, 1)
        assert not distant.stored(origin(1))
        call(distant, 2)
        call(distant, 1)
        assert database.paid() == [1, 2]

    def test_a_commit_that_arrives_after_its_outcome_was_read_stores_nothing(
        self, database: PaidDatabase, network: CutNetwork, distant: SqlUnitEffects
    ) -> None:
        network.cut = Cut.LATE
        with pytest.raises(EffectsUnavailable):
            call(distant, 1)
        assert b"division by zero" in network.deliver()
        assert database.paid() == []
        call(distant, 1)
        assert database.paid() == [1]

    @pytest.mark.parametrize("cut", [Cut.ANSWER, Cut.MESSAGE])
    def test_an_outcome_that_cannot_be_read_is_unknown(
        self, database: PaidDatabase, network: CutNetwork, distant: SqlUnitEffects, cut: Cut
    ) -> None:
        transaction = distant.begin()
        pay(transaction, 1)
        network.cut, network.is_up = cut, False
        with pytest.raises(OutcomeUnknown, match=r"unit 0\.3 of subscription:payments#1 .*may"):
            transaction.commit([origin(1)])
        network.is_up = True
        with pytest.raises(OutcomeUnknown):
            call(distant, 2)
        stored = cut is Cut.ANSWER
        assert database.paid() == ([1] if stored else [])
        new = SqlEffects(database.target).take_over(CONSUMER, "0.3", 6)
        assert new.stored(origin(1)) is stored

    def test_a_lost_answer_after_a_takeover_is_a_success(
        self, database: PaidDatabase, network: CutNetwork, distant: SqlUnitEffects, opens: Opens
    ) -> None:
        network.cut, network.is_up = Cut.ANSWER, False
        transaction = distant.begin()
        pay(transaction, 1)
        committed = threading.Event()

        def commit() -> None:
            transaction.commit([origin(1)])
            committed.set()

        thread = in_thread(commit)
        until(lambda: database.paid() == [1])
        assert opens(database.target).take_over(CONSUMER, "0.3", 6).stored(origin(1))
        network.is_up = True
        thread.join()
        assert committed.is_set()
        with pytest.raises(Fenced, match="epoch 6"):
            call(distant, 2)
        assert database.paid() == [1]

    def test_an_owner_that_was_stopped_before_its_commit_writes_nothing_after_a_takeover(
        self, database: PaidDatabase, unit: SqlUnitEffects, opens: Opens
    ) -> None:
        old = unit.begin()
        pay(old, 1)
        new = opens(database.target).take_over(CONSUMER, "0.3", 6)
        transaction = new.begin()
        transaction.connection.execute("INSERT INTO paid VALUES (2)")
        transaction.commit([origin(1)])
        with pytest.raises(Fenced, match="epoch 6; this owner had 5"):
            old.commit([origin(1)])
        assert database.paid() == [2]

    def test_a_stopped_process_holds_no_lock_that_a_takeover_needs(
        self, database: PaidDatabase, opens: Opens
    ) -> None:
        child = Child(pay_and_wait, database.target, 1)
        with continued_after(await_stop(child)):
            new = opens(database.target).take_over(CONSUMER, "0.3", 6)
            call(new, 2)
        assert list(child.rest()) == ["fenced"]
        assert database.paid() == [2]

    def test_the_server_ends_the_transaction_of_a_stopped_owner(
        self, database: PaidDatabase, opens: Opens
    ) -> None:
        query(database.target, "INSERT INTO paid VALUES (1)")
        old = opens(database.target, idle_in_transaction_s=0.2).take_over(CONSUMER, "0.3", 5)
        transaction = old.begin()
        transaction.connection.execute("UPDATE paid SET id = 2")
        new = opens(database.target).take_over(CONSUMER, "0.3", 6).begin()
        new.connection.execute("UPDATE paid SET id = 3")  # Waits for the lock of the row.
        new.commit([origin(1)])
        with pytest.raises(Fenced):
            transaction.commit([origin(2)])
        assert database.paid() == [3]

    def test_a_transaction_that_the_server_ended_is_raised_and_can_be_repeated(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        pay(transaction, 1)
        pid = transaction.connection.info.backend_pid
        query(database.target, f"SELECT pg_terminate_backend({pid}, 10000)")
        with pytest.raises(EffectsUnavailable, match="terminating connection"):
            transaction.commit([origin(1)])
        call(unit, 1)
        assert database.paid() == [1]

    def test_a_connection_that_was_lost_while_idle_is_replaced(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        call(unit, 1)
        query(
            database.target,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        call(unit, 2)
        assert database.paid() == [1, 2]

    def test_a_commit_that_the_database_refuses_is_raised_as_it_is(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        call(unit, 1)
        transaction = unit.begin()
        pay(transaction, 1)
        with pytest.raises(psycopg.errors.UniqueViolation):
            transaction.commit([origin(2)])
        assert not unit.stored(origin(2))
        call(unit, 2)
        assert database.paid() == [1, 2]

    def test_an_error_that_the_handler_swallowed_is_raised_by_the_commit(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        pay(transaction, 1)
        with pytest.raises(psycopg.errors.UndefinedTable):
            transaction.connection.execute("SELECT * FROM missing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            transaction.commit([origin(1)])
        assert not unit.stored(origin(1))
        assert database.paid() == []

    @pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
    def test_a_handler_that_ends_its_transaction_by_a_statement_is_refused(
        self, unit: SqlUnitEffects, statement: str
    ) -> None:
        transaction = unit.begin()
        transaction.connection.execute(statement)
        with pytest.raises(TransactionRefused, match="COMMIT or ROLLBACK"):
            transaction.commit([origin(1)])
        assert not unit.stored(origin(1))

    def test_a_handler_may_use_inner_transactions_and_any_row_factory(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        transaction.connection.row_factory = psycopg.rows.dict_row
        with transaction.connection.transaction(force_rollback=True):
            pay(transaction, 1)
        with transaction.connection.transaction():
            pay(transaction, 2)
        transaction.commit([origin(1), origin(2)])
        assert database.paid() == [2]

    @pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
    def test_a_takeover_waits_for_a_commit_under_way_and_knows_it(
        self, database: PaidDatabase, opens: Opens, level: str
    ) -> None:
        name = database.target.rpartition("/")[2]
        database.query(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
        hold_commits(database, "RETURN NULL")
        taken: list[SqlUnitEffects] = []
        unit, effects = opens(database.target).take_over(CONSUMER, "0.3", 5), opens(database.target)
        with held_commits(database):
            committing = in_thread(lambda: call(unit, 1))
            until(lambda: sessions(database, "wait_event_type = 'Lock'") == 1)
            taking = in_thread(lambda: taken.append(effects.take_over(CONSUMER, "0.3", 6)))
            until(lambda: sessions(database, "wait_event_type = 'Lock'") == 2)
            assert taken == []
        committing.join()
        taking.join()
        assert taken[0].stored(origin(1))
        assert database.paid() == [1]

    def test_a_failed_commit_leaves_nothing_in_the_commits_that_waited_for_it(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        hold_commits(database, "RAISE EXCEPTION 'refused'")
        failed: list[BaseException] = []

        def refused() -> None:
            try:
                call(unit, 1)
            except BaseException as error:
                failed.append(error)

        with held_commits(database):
            first = in_thread(refused)
            until(lambda: sessions(database, "wait_event_type = 'Lock'") == 1)
            second = in_thread(lambda: call(unit, 2))
            until(lambda: sessions(database, "query LIKE '%paid VALUES (2)'") == 1)
        first.join()
        second.join()
        assert [type(error) for error in failed] == [psycopg.errors.RaiseException]
        for owner in (unit, effects.take_over(CONSUMER, "0.3", 6)):
            assert [owner.stored(origin(id)) for id in (1, 2)] == [False, True]
        assert database.paid() == [2]

    def test_tables_that_another_process_is_creating_are_waited_for(
        self, database: PaidDatabase, opens: Opens
    ) -> None:
        taken: list[SqlUnitEffects] = []
        effects = opens(database.target)
        with psycopg.connect(database.target) as other:
            other.execute(CREATE_TABLES.removesuffix("COMMIT").encode())
            taking = in_thread(lambda: taken.append(effects.take_over(CONSUMER, "0.3", 5)))
            until(lambda: sessions(database, "wait_event_type = 'Lock'") == 1)
        taking.join()
        call(taken[0], 1)
        assert database.paid() == [1]

    def test_a_function_that_connects_is_a_target(
        self, database: PaidDatabase, opens: Opens
    ) -> None:
        connect: Callable[[], Any] = partial(psycopg.connect, database.target)
        effects = opens(connect)
        unit = effects.take_over(CONSUMER, "0.3", 5)
        call(unit, 1)
        transaction = unit.begin()
        with pytest.raises(TransactionRefused):
            transaction.connection.commit()
        transaction.rollback()
        assert database.paid() == [1]
        assert repr(effects).startswith("SqlEffects('postgresql://127.0.0.1:")

    def test_a_missing_database_is_named_without_the_password(
        self, postgres_port: int, opens: Opens
    ) -> None:
        effects = opens(f"postgresql://postgres:secret@127.0.0.1:{postgres_port}/missing")
        with pytest.raises(EffectsUnavailable, match='database "missing" does not exist') as raised:
            effects.take_over(CONSUMER, "0.3", 5)
        assert raised.value.database == f"postgresql://127.0.0.1:{postgres_port}/missing"
        assert "secret" not in str(raised.value)

    def test_a_user_without_the_right_to_create_tables_uses_existing_ones(
        self, database: PaidDatabase, unit: SqlUnitEffects, opens: Opens
    ) -> None:
        role = f"app_{database.target.rpartition('/')[2]}"
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        ):
            query(database.target, statement)
        target = database.target.replace("postgres@", f"{role}@")
        try:
            call(opens(target).take_over(CONSUMER, "0.3", 6), 1)
            assert database.paid() == [1]
        finally:
            query(database.target, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_effects_continue_after_a_restart_of_the_server(own_postgres: OwnPostgres) -> None:
    database = paid_database(own_postgres.url)
    effects = SqlEffects(own_postgres.url, outcome_timeout_s=0.3)
    unit = effects.take_over(CONSUMER, "0.3", 5)
    call(unit, 1)
    transaction = unit.begin()
    pay(transaction, 2)
    own_postgres.stop()
    with pytest.raises(OutcomeUnknown):
        transaction.commit([origin(2)])
    with pytest.raises(EffectsUnavailable, match="refused"):
        unit.begin()
    own_postgres.start()
    unit = effects.take_over(CONSUMER, "0.3", 6)
    assert [unit.stored(origin(id)) for id in (1, 2)] == [True, False]
    call(unit, 2)
    assert database.paid() == [1, 2]
    effects.close()


def test_a_commit_that_a_restart_interrupts_is_resolved_when_the_server_is_back(
    own_postgres: OwnPostgres,
) -> None:
    database = paid_database(own_postgres.url)
    effects = SqlEffects(own_postgres.url)
    unit = effects.take_over(CONSUMER, "0.3", 5)
    transaction = unit.begin()
    pay(transaction, 1)
    own_postgres.stop(signal.SIGQUIT)
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            transaction.commit([origin(1)])
        except BaseException as error:
            failed.append(error)

    thread = in_thread(commit)
    own_postgres.start()
    thread.join()
    assert [type(error) for error in failed] == [EffectsUnavailable]
    call(unit, 1)
    assert database.paid() == [1]
    effects.close()
