"""The safeguards of subscriptions, each removed, to prove that the simulator notices.

A mutation replaces one function for the time of a test; the code itself knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Transaction
from tailrace.delivery.process_gate import ProcessGate
from tailrace.message import Partition, Range
from tailrace.subscription.shard import lag
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.commit.outbox import Outbox
from tailrace.subscription.shard.intake import Intake
from tailrace.subscription.shard.queues import MessageRoute, OnDeadLetter, Queue
from tailrace.subscription.shard.takeover import Takeover
from tailrace.subscription.store import takeover, transaction
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.transaction import ShardTargets
from tailrace.subscription.worker import shard_io
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.testing.memory.store import MemoryStore


def without_the_atomic_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are stored in one transaction, and what is appended in the next."""
    right = transaction.commit_shard

    class Separately:
        def __init__(self, backend: Backend) -> None:
            self._backend = backend

        def commit(self, transaction: Transaction) -> list[Range]:
            table = Transaction(table=transaction.table, fence=transaction.fence)
            self._backend.commit(table)
            return self._backend.commit(replace(transaction, table={}))

    def commit_shard(
        backend: Backend, targets: ShardTargets, commit: ShardCommit, *others: Any
    ) -> list[tuple[Partition, int]]:
        separately = backend if not commit.moves else Separately(backend)
        return right(separately, targets, commit, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(shard_io, "commit_shard", commit_shard)


def without_what_was_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit that failed, the next one acknowledges what was not appended."""
    right = Outbox.not_stored

    def not_stored(self: Outbox, commit: ShardCommit) -> None:
        commit.moves.clear()
        right(self, commit)

    monkeypatch.setattr(Outbox, "not_stored", not_stored)


def without_the_takeover_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new owner calls messages before it has read the keys that lag."""
    right = takeover.read_takeover

    def read_takeover(backend: Backend, stored: StoredSubscription, shard: int) -> Takeover:
        return replace(right(backend, stored, shard), rq=(), dlq=())

    monkeypatch.setattr(shard_io, "read_takeover", read_takeover)


def without_the_lag_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is delivered although older ones of its key wait in RQ."""

    def route_of(
        queue: Queue, *, lags_in_rq: bool, lags_in_dlq: bool, policy: OnDeadLetter
    ) -> MessageRoute:
        blocked = queue is not Queue.DLQ and lags_in_dlq and policy is OnDeadLetter.BLOCK
        return MessageRoute.TO_DLQ if blocked else MessageRoute.DELIVER

    monkeypatch.setattr(lag, "route_of", route_of)


def without_the_lag_in_dlq(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is delivered although a dead letter blocks its key."""

    def route_of(
        queue: Queue, *, lags_in_rq: bool, lags_in_dlq: bool, policy: OnDeadLetter
    ) -> MessageRoute:
        return MessageRoute.TO_RQ if queue is Queue.MQ and lags_in_rq else MessageRoute.DELIVER

    monkeypatch.setattr(lag, "route_of", route_of)


def without_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write under an epoch that has ended is accepted."""
    monkeypatch.setattr(MemoryStore, "check_fence", lambda self, fence: None)


def without_dropping_a_shard_of_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose outcome is unknown is tried again."""
    monkeypatch.setattr(shard_io, "OutcomeUnknown", ())


def without_the_lineage_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is read before those that it follows are finished."""
    monkeypatch.setattr(Intake, "open", lambda self, partition: True)


def without_the_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unclean end all messages are called together again."""

    def suspect(self: AttemptBook, origin: Origin) -> bool:
        return False

    right = Intake.add

    def add(self: Intake, streams: object, permits: object, ended: object) -> None:
        right(self, streams, {}, ())  # type: ignore[arg-type]

    monkeypatch.setattr(AttemptBook, "suspect", suspect)
    monkeypatch.setattr(Intake, "add", add)


def without_the_gate_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspect is alone in its worker, and not in its process."""
    right = WorkerMachine.enter

    def enter(self: WorkerMachine[Any], gate: ProcessGate, wake: Callable[[], None]) -> None:
        right(self, ProcessGate(), wake)

    monkeypatch.setattr(WorkerMachine, "enter", enter)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_atomic_move,
        without_what_was_not_stored,
        without_the_takeover_order,
        without_the_lag_rule,
        without_the_lag_in_dlq,
        without_the_fence,
        without_dropping_a_shard_of_unknown_outcome,
        without_the_lineage_gate,
        without_the_call_alone,
        without_the_gate_of_the_process,
    )
}
