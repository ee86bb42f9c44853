"""Effects in a real PostgreSQL that does not answer: lost and late commits, restarts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from tailrace.errors import EffectsUnavailable, Fenced, OutcomeUnknown
from tailrace.queue.effects.sql_effects import SqlEffects
from tailrace.queue.effects.unit import SqlUnitEffects
from tests.support.effects_contract import CONSUMER, Opens, PaidDatabase, call, origin, pay
from tests.support.postgres_effects import PostgresEffects, paid_database, query
from tests.support.servers.cut_network import Cut, CutNetwork, cut_network
from tests.support.servers.postgres import OwnPostgres
from tests.support.waiting import in_thread, until


class TestOutages(PostgresEffects):
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
