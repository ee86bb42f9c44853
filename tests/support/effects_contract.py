"""The guarantees of effects on every database, written once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from tailrace.errors import Error, Fenced, InvalidValue
from tailrace.message import Partition
from tailrace.queue.effects.database import TransactionRefused
from tailrace.queue.effects.sql_effects import SqlEffects
from tailrace.queue.effects.unit import SqlTransaction, SqlUnitEffects
from tailrace.subscription.shard.attempts import Origin
from tests.support.processes import Child, Report, ended_well, fork

CONSUMER = "subscription:payments#1"
STREAM = Partition("orders", 0, 1)
THREADS = 8


class PaidDatabase(NamedTuple):
    """A database with an empty table `paid (id)`. `query` runs a statement on its own
    connection."""

    target: str
    query: Callable[[str], list[tuple[Any, ...]]]

    def paid(self) -> list[int]:
        """The ids in the table of the handler."""
        return [id for (id,) in self.query("SELECT id FROM paid ORDER BY id")]


class Opens(Protocol):
    """Makes effects that are closed after the test."""

    def __call__(self, target: str | Path | Callable[[], Any], **options: float) -> SqlEffects: ...


def origin(offset: int, reset: int = 0) -> Origin:
    """A message of the stream of these tests."""
    return Origin(STREAM, offset, reset)


def pay(transaction: SqlTransaction, *ids: int) -> None:
    """Write as a handler does."""
    for id in ids:
        transaction.connection.execute(f"INSERT INTO paid VALUES ({id})")


def call(unit: SqlUnitEffects, *ids: int) -> None:
    """Handle a batch of messages, whose ids are their offsets."""
    transaction = unit.begin()
    pay(transaction, *ids)
    transaction.commit([origin(id) for id in ids])


def take_over_in_child(report: Report, target: str, unit: str) -> None:
    report("ready")
    effects = SqlEffects(target)
    effects.take_over(CONSUMER, unit, 1)
    effects.close()
    report("taken")


class EffectsFixtures:
    """Effects of a database. A subclass provides the fixture `database`."""

    @pytest.fixture
    def opens(self) -> Iterator[Opens]:
        opened: list[SqlEffects] = []

        def open(target: str | Path | Callable[[], Any], **options: float) -> SqlEffects:
            opened.append(SqlEffects(target, **options))
            return opened[-1]

        yield open
        for effects in opened:
            effects.close()

    @pytest.fixture
    def effects(self, database: PaidDatabase, opens: Opens) -> SqlEffects:
        return opens(database.target)

    @pytest.fixture
    def unit(self, effects: SqlEffects) -> SqlUnitEffects:
        return effects.take_over(CONSUMER, "0.3", 5)


class EffectsContract(EffectsFixtures):
    """Tests for a database. A subclass provides the fixture `database`."""

    def test_effects_and_their_messages_are_stored_together(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        pay(transaction, 7)
        assert database.paid() == []
        assert not unit.stored(origin(7))
        transaction.commit([origin(7)])
        assert database.paid() == [7]
        for owner in (unit, effects.take_over(CONSUMER, "0.3", 6)):
            assert [owner.stored(origin(offset)) for offset in (6, 7, 8)] == [False, True, False]

    def test_a_failed_call_stores_neither_effects_nor_messages(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        pay(transaction, 7)
        transaction.rollback()
        transaction.rollback()
        assert database.paid() == []
        assert not unit.stored(origin(7))
        assert not effects.take_over(CONSUMER, "0.3", 6).stored(origin(7))

    def test_a_failed_call_leaves_its_connection_for_the_next(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        connection = transaction.connection
        with pytest.raises(Exception, match="missing"):
            connection.execute("INSERT INTO missing VALUES (1)")
        transaction.rollback()
        again = unit.begin()
        assert again.connection is connection
        pay(again, 1)
        again.commit([origin(1)])
        assert database.paid() == [1]

    def test_an_ended_transaction_cannot_be_used(self, unit: SqlUnitEffects) -> None:
        transaction = unit.begin()
        transaction.commit([origin(1)])
        with pytest.raises(Error, match="has ended"):
            transaction.commit([origin(2)])
        assert not unit.stored(origin(2))

    def test_a_stale_epoch_is_refused_and_writes_nothing(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        before = database.query("SELECT * FROM tailrace_owners")
        with pytest.raises(Fenced, match=r"unit 0\.3 .*\(epoch 5; this owner had 4"):
            effects.take_over(CONSUMER, "0.3", 4)
        assert database.query("SELECT * FROM tailrace_owners") == before
        call(unit, 1)
        assert database.paid() == [1]

    def test_an_owner_writes_nothing_after_a_takeover(
        self, database: PaidDatabase, opens: Opens, unit: SqlUnitEffects
    ) -> None:
        new = opens(database.target).take_over(CONSUMER, "0.3", 6)
        transaction = unit.begin()
        pay(transaction, 1)
        with pytest.raises(Fenced, match="epoch 6; this owner had 5"):
            transaction.commit([origin(1)])
        assert database.paid() == []
        assert not new.stored(origin(1))
        with pytest.raises(Fenced):
            call(unit, 2)
        call(new, 1)
        assert database.paid() == [1]

    def test_an_owner_that_takes_over_again_fences_itself(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        again = effects.take_over(CONSUMER, "0.3", 5)
        with pytest.raises(Fenced, match=r"epoch 5 ended"):
            call(unit, 1)
        call(again, 1)
        assert database.paid() == [1]

    def test_a_new_generation_knows_and_fences_all_units_of_earlier_ones(
        self, database: PaidDatabase, opens: Opens, effects: SqlEffects
    ) -> None:
        old = [effects.take_over(CONSUMER, f"0.{shard}", 20 + shard) for shard in range(3)]
        for offset, unit in enumerate(old):
            call(unit, offset)
        new = opens(database.target).take_over(CONSUMER, "1.0", 30)
        assert [new.stored(origin(offset)) for offset in range(4)] == [True, True, True, False]
        for unit in old:
            with pytest.raises(Fenced):
                call(unit, 9)
        call(new, 3)
        assert database.paid() == [0, 1, 2, 3]

    def test_a_unit_of_an_earlier_generation_cannot_be_taken_over(
        self, database: PaidDatabase, effects: SqlEffects
    ) -> None:
        effects.take_over(CONSUMER, "10.0", 30)
        for unit, epoch in (("9.0", 31), ("2.1", 5)):
            with pytest.raises(Fenced):
                effects.take_over(CONSUMER, unit, epoch)
        assert database.query("SELECT unit, epoch FROM tailrace_owners") == [("10.0", 30)]

    def test_units_of_one_generation_do_not_fence_each_other(
        self, database: PaidDatabase, effects: SqlEffects
    ) -> None:
        one = effects.take_over(CONSUMER, "1.0", 9)
        other = effects.take_over(CONSUMER, "1.1", 8)
        call(one, 1)
        call(other, 2)
        assert database.paid() == [1, 2]

    def test_units_that_share_a_stream_do_not_overwrite_each_other(
        self, effects: SqlEffects
    ) -> None:
        units = [effects.take_over(CONSUMER, f"1.{shard}", shard) for shard in (1, 2)]
        for offset in range(10):
            call(units[offset % 2], offset)
        known = effects.take_over(CONSUMER, "2.0", 9)
        assert all(known.stored(origin(offset)) for offset in range(10))

    def test_consumers_share_nothing(self, effects: SqlEffects, unit: SqlUnitEffects) -> None:
        call(unit, 1)
        other = effects.take_over("subscription:payments#2", "0.3", 1)
        assert not other.stored(origin(1))

    def test_a_message_that_is_replayed_after_a_reset_is_another_one(
        self, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        unit.begin().commit([origin(1), origin(2, reset=1)])
        for owner in (unit, effects.take_over(CONSUMER, "0.3", 6)):
            assert owner.stored(origin(1))
            assert not owner.stored(origin(1, reset=1))
            assert owner.stored(origin(2, reset=1))

    def test_a_message_is_not_stored_twice(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        call(unit, 1)
        transaction = unit.begin()
        pay(transaction, 2)
        with pytest.raises(InvalidValue, match=r"orders/0\.1@1"):
            transaction.commit([origin(2), origin(1)])
        assert database.paid() == [1]
        with pytest.raises(InvalidValue, match="at least one"):
            unit.begin().commit([])

    def test_concurrent_commits_of_a_unit_lose_nothing(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        start = threading.Barrier(THREADS)
        failed: list[BaseException] = []

        def work(first: int) -> None:
            try:
                start.wait()
                for id in range(first, 20 * THREADS, THREADS):
                    call(unit, id)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert database.paid() == list(range(20 * THREADS))
        again = effects.take_over(CONSUMER, "0.3", 6)
        assert all(again.stored(origin(id)) for id in range(20 * THREADS))

    def test_processes_that_create_the_tables_at_once_all_succeed(
        self, database: PaidDatabase
    ) -> None:
        children = [Child(take_over_in_child, database.target, f"0.{n}") for n in range(4)]
        reports = [list(child.rest()) for child in children]
        assert reports == [["ready", "taken"]] * 4
        assert len(database.query("SELECT unit FROM tailrace_owners")) == 4

    @pytest.mark.parametrize("method", ["commit", "rollback", "close"])
    def test_a_handler_may_not_end_its_transaction(
        self, database: PaidDatabase, unit: SqlUnitEffects, method: str
    ) -> None:
        transaction = unit.begin()
        pay(transaction, 1)
        with pytest.raises(TransactionRefused, match=rf"call {method}\(\).*outcome decides"):
            getattr(transaction.connection, method)()
        assert database.paid() == []
        transaction.commit([origin(1)])
        assert database.paid() == [1]

    def test_a_handler_may_not_use_its_connection_as_a_context(
        self, database: PaidDatabase, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        with pytest.raises(TransactionRefused), transaction.connection:
            pay(transaction, 1)
        transaction.rollback()
        assert database.paid() == []

    def test_a_forked_child_opens_connections_of_its_own(
        self, database: PaidDatabase, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        call(unit, 1)

        def work() -> None:
            child = effects.take_over(CONSUMER, "0.4", 9)
            call(child, 2)
            effects.close()

        assert ended_well(fork(work))
        call(unit, 3)
        assert database.paid() == [1, 2, 3]

    def test_closed_effects_open_no_connection(
        self, effects: SqlEffects, unit: SqlUnitEffects
    ) -> None:
        transaction = unit.begin()
        effects.close()
        transaction.commit([origin(1)])
        with pytest.raises(Error, match="closed"):
            unit.begin()
