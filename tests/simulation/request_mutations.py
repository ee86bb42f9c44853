"""The safeguards of requests on dead letters, each removed, to prove that the simulator notices."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.backend.contract import Backend, TableKey, Transaction
from tailrace.message import Range
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.requests.state import RequestState
from tailrace.subscription.shard.requests.work import RequestWork
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store import transaction as shard_transaction
from tailrace.subscription.store.transaction import ShardTargets
from tailrace.topic.audit_log import AuditEntry, commit_audited


def without_the_audit_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit line is appended after the transaction of the effect."""

    def separately(
        backend: Backend, transaction: Transaction, entries: Sequence[AuditEntry], now_ms: int
    ) -> list[Range]:
        ranges = backend.commit(transaction)
        commit_audited(backend, Transaction(fence=transaction.fence), entries, now_ms)
        return ranges

    monkeypatch.setattr(shard_transaction, "commit_audited", separately)


def without_the_stored_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of a request is not stored with its effects."""
    right = shard_transaction._table

    def table(targets: ShardTargets, commit: ShardCommit) -> dict[TableKey, bytes | None]:
        removed: dict[str, RequestState | None] = {
            id: state for id, state in commit.requests.items() if state is None
        }
        commit.requests.clear()
        commit.requests.update(removed)
        return right(targets, commit)

    monkeypatch.setattr(shard_transaction, "_table", table)


def without_the_outcome_of_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of a target is stored only when the whole request ends."""
    right = shard_transaction._table

    def table(targets: ShardTargets, commit: ShardCommit) -> dict[TableKey, bytes | None]:
        for id, state in list(commit.requests.items()):
            if state is not None and not state.ended:
                del commit.requests[id]
        return right(targets, commit)

    monkeypatch.setattr(shard_transaction, "_table", table)


def without_the_wait_for_a_redelivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``continue`` messages of a key are called while a dead letter of it is."""

    def hold(self: RequestWork, turn: Turn) -> bool:
        return False

    monkeypatch.setattr(RequestWork, "hold", hold)


MUTATIONS = {
    mutation.__name__: mutation
    for mutation in (
        without_the_audit_in_the_transaction,
        without_the_stored_end,
        without_the_outcome_of_a_target,
        without_the_wait_for_a_redelivery,
    )
}
