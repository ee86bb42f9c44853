"""A worker whose handler writes to a database: each message has its effects once."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace import (
    Delivery,
    EffectsUnavailable,
    Error,
    Fenced,
    Message,
    OutcomeUnknown,
    Retry,
    SqlEffects,
)
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.worker.effects import EffectsTransaction, UnitEffects
from tests.support.waiting import DEADLINE_S, until
from tests.support.workers import Office


class Paid:
    """A database of payments, and a handler that stores them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "paid.db"
        with sqlite3.connect(self.path) as connection:
            connection.execute("create table paid (n)")
        self.effects = SqlEffects(str(self.path))
        self.calls: list[tuple[int, int]] = []
        self.fails_once: set[int] = set()

    def __call__(self, delivery: Delivery[int]) -> None:
        self.calls.append((delivery.value, delivery.attempt))
        delivery.connection.execute("insert into paid values (?)", (delivery.value,))
        if delivery.value in self.fails_once and delivery.attempt == 1:
            raise ValueError("no stock")

    def rows(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return sorted(n for (n,) in connection.execute("select n from paid"))


class FaultyEffects:
    """Effects that fail where a test wants them to."""

    def __init__(self, effects: SqlEffects) -> None:
        self._effects = effects
        self.take_over_errors: list[Exception] = []
        self.begin_errors: list[Exception] = []
        self.commit_errors: list[Exception] = []
        """Raised after the commit is stored."""
        self.taken_over = 0

    def take_over(self, consumer: str, unit: str, epoch: int) -> UnitEffects:
        if self.take_over_errors:
            raise self.take_over_errors.pop()
        self.taken_over += 1
        return FaultyUnit(self, self._effects.take_over(consumer, unit, epoch))

    def check(self, hub_directory: str) -> None:
        self._effects.check(hub_directory)

    def close(self) -> None:
        self._effects.close()


class FaultyUnit:
    def __init__(self, effects: FaultyEffects, unit: UnitEffects) -> None:
        self._effects, self._unit = effects, unit

    def stored(self, origin: Origin) -> bool:
        return self._unit.stored(origin)

    def pass_over(self, first: Origin, after: int) -> None:
        self._unit.pass_over(first, after)

    def begin(self) -> EffectsTransaction:
        if self._effects.begin_errors:
            raise self._effects.begin_errors.pop()
        return FaultyTransaction(self._effects, self._unit.begin())


class FaultyTransaction:
    def __init__(self, effects: FaultyEffects, transaction: EffectsTransaction) -> None:
        self._effects, self._transaction = effects, transaction

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    def commit(self, origins: Any) -> None:
        self._transaction.commit(origins)
        if self._effects.commit_errors:
            raise self._effects.commit_errors.pop()

    def rollback(self) -> None:
        self._transaction.rollback()


@pytest.fixture
def paid(tmp_path: Path) -> Paid:
    return Paid(tmp_path)


def start(office: Office, paid: Paid, effects: Any = None, **options: Any) -> Any:
    return office.subscription.start(
        paid, guarantee="exactly-once", effects=effects or paid.effects, **options
    )


def test_a_handler_that_fails_is_rolled_back_and_called_again(paid: Paid) -> None:
    office = Office()
    paid.fails_once = {2}
    office.topic.push_many([("a", 1), ("a", 2), ("a", 3)])
    with start(office, paid) as worker:
        until(lambda: worker.stats().succeeded == 3)
    assert paid.calls == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert paid.rows() == [1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [Fenced("0.0", 1, 2), OutcomeUnknown("who knows"), EffectsUnavailable("paid.db", "restarts")],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_without_a_clear_answer_gives_the_shard_up_and_counts_no_attempt(
    paid: Paid, error: Exception
) -> None:
    office, effects = Office(), FaultyEffects(paid.effects)
    effects.commit_errors = [error]
    office.topic.push_many([("a", 1), ("a", 2)])
    with start(office, paid, effects) as worker:
        until(lambda: worker.stats().succeeded == 2)
        assert worker.stats().failed == 0
    assert effects.taken_over == 2
    assert paid.calls == [(1, 1), (2, 1)], "what the database has is not called again"
    assert paid.rows() == [1, 2]


def test_a_database_that_does_not_answer_at_the_takeover_delays_the_shard(paid: Paid) -> None:
    office, effects = Office(), FaultyEffects(paid.effects)
    effects.take_over_errors = [EffectsUnavailable("paid.db", "no answer") for _ in range(3)]
    office.topic.push_many([("a", 1), ("a", 2)])
    with start(office, paid, effects) as worker:
        until(lambda: worker.stats().succeeded == 2)
    assert (effects.take_over_errors, effects.taken_over) == ([], 1)
    assert paid.calls == [(1, 1), (2, 1)]


def test_a_database_that_does_not_answer_at_a_call_costs_no_attempt(paid: Paid) -> None:
    office, effects = Office(), FaultyEffects(paid.effects)
    effects.begin_errors = [EffectsUnavailable("paid.db", "no answer") for _ in range(5)]
    office.topic.push_many([("a", 1), ("a", 2)])
    with start(office, paid, effects) as worker:
        until(lambda: worker.stats().succeeded == 2)
        assert worker.stats().failed == 0
    assert paid.calls == [(1, 1), (2, 1)]
    assert paid.rows() == [1, 2]


def test_a_handler_that_returns_an_awaitable_stores_nothing(paid: Paid) -> None:
    office = Office()

    async def later() -> None:
        """It is never awaited."""

    def handle(delivery: Delivery[int]) -> Any:
        coroutines.append(later())
        return coroutines[-1]

    coroutines: list[Any] = []
    office.topic.push(1, key="a")
    with office.subscription.start(
        handle, guarantee="exactly-once", effects=paid.effects
    ) as worker:
        until(lambda: worker.stats().failed)
    assert worker.stats().succeeded == 0
    for each in coroutines:
        each.close()


def test_a_batch_is_one_transaction(paid: Paid) -> None:
    office = Office()
    sizes: list[int] = []

    def handle(batch: list[Delivery[int]]) -> None:
        sizes.append(len(batch))
        for each in batch:
            each.connection.execute("insert into paid values (?)", (each.value,))
        if len(batch) > 1 and any(each.value == 3 for each in batch):
            raise ValueError("no stock")

    office.topic.push_many([(f"k{number}", number) for number in range(20)])
    with office.subscription.start(
        handle, guarantee="exactly-once", effects=paid.effects, batch=True, batch_size=5
    ) as worker:
        until(lambda: worker.stats().succeeded == 20)
    assert max(sizes) == 5
    assert paid.rows() == list(range(20))


def test_nothing_can_be_pushed_beside_effects_because_no_commit_is_one_of_both(
    tmp_path: Path,
) -> None:
    office, paid = Office(), Paid(tmp_path)
    refused: list[Exception] = []

    def handle(delivery: Delivery[int]) -> None:
        try:
            delivery.tx.push("done", delivery.value)
        except Error as error:
            refused.append(error)
        paid(delivery)

    office.topic.push(1, key="a")
    options: Any = {"guarantee": "exactly-once", "effects": paid.effects}
    with office.subscription.start(handle, type=int, **options):
        until(lambda: paid.rows() == [1])
    assert "without effects" in str(refused[0])


def test_filtered_messages_leave_no_gaps_in_what_the_database_stores(tmp_path: Path) -> None:
    """Otherwise the rows grow with the number of messages that are handled."""
    office, paid = Office(filter="key == 'a'"), Paid(tmp_path)
    office.topic.push_many([("a" if number % 2 else "b", number) for number in range(400)])
    options: Any = {"guarantee": "exactly-once", "effects": paid.effects}

    def passes(message: Message[Any]) -> bool:
        return message.offset % 4 == 3

    with office.subscription.start(paid, type=int, filter=passes, **options):
        until(lambda: len(paid.rows()) == 100)
    with sqlite3.connect(paid.path) as connection:
        (stored,) = connection.execute("SELECT sum(length(done)) FROM tailrace_effects").fetchone()
    assert stored < 60
    assert paid.rows() == [number for number in range(400) if number % 4 == 3]


def test_a_call_that_was_given_up_stores_no_effects_later(tmp_path: Path) -> None:
    """Otherwise a dead letter would have rows, and who discards it would not know."""
    office, paid = Office(retry=Retry(attempts=1)), Paid(tmp_path)
    release = threading.Event()

    def handle(delivery: Delivery[int]) -> None:
        paid(delivery)
        release.wait(DEADLINE_S)

    office.topic.push(1, key="a")
    options: Any = {"guarantee": "exactly-once", "effects": paid.effects, "timeout": "50ms"}
    with office.subscription.start(handle, type=int, **options):
        until(lambda: len(office.subscription.dead_letters) == 1)
        release.set()
    with sqlite3.connect(paid.path) as connection:
        connection.execute("BEGIN IMMEDIATE")  # the transaction of the call has ended
    assert paid.rows() == []
