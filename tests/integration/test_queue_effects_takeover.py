"""Effects in a real PostgreSQL whose owner was stopped, or is in the middle of a commit."""

from __future__ import annotations

import os
import signal

import pytest

from tailrace.errors import Fenced
from tailrace.queue.effects.sql_effects import SqlEffects
from tailrace.queue.effects.unit import SqlUnitEffects
from tests.support.effects_contract import CONSUMER, Opens, PaidDatabase, call, origin, pay
from tests.support.postgres_effects import (
    PostgresEffects,
    held_commits,
    hold_commits,
    query,
    sessions,
)
from tests.support.processes import Child, Report, Stopped, await_stop, continued_after
from tests.support.waiting import in_thread, until


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


class TestTakeover(PostgresEffects):
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
