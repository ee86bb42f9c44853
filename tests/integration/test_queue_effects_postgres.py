"""Effects in a real PostgreSQL: the contract, handlers, and the rights of users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from tailrace.errors import EffectsUnavailable
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
from tests.support.postgres_effects import (
    PostgresEffects,
    held_commits,
    hold_commits,
    query,
    sessions,
)
from tests.support.waiting import in_thread, until


class TestPostgres(PostgresEffects, EffectsContract):
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
