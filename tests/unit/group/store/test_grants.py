"""Terms and grants in the store: who may grant, and who owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Fence, Transaction
from tailrace.errors import BackendUnavailable, Fenced, OutcomeUnknown, UnknownGroup
from tailrace.group.protocol.actions import CommitGrants, Elect, NewGrant
from tailrace.group.protocol.events import (
    Elected,
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    LeaderFound,
)
from tailrace.group.protocol.unit import LeaderEntry, StoredGrant
from tailrace.group.store.definition import LEADERS, grant_key, unit_fence
from tailrace.group.store.grants import (
    commit_grants,
    elect,
    find_leader,
    leader_found,
    read_grants,
    resign,
    standing_grants,
)
from tailrace.group.store.lifecycle import delete_group, open_group
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.streams import read_basis
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock, MemoryBackend
from tests.support.groups import GROUP, ack, grant, lead, marks, owner


@pytest.fixture
def orders(backend: Backend, hub: Hub, clock: ManualClock) -> Topic[Any]:
    topic = hub.create_topic("orders", partitions=2)
    topic.push_many([(f"c{i}", i) for i in range(20)])
    open_group(backend, GROUP, "orders", "earliest", clock)
    return topic


def test_the_first_to_elect_leads_and_the_second_learns_of_it(
    backend: Backend, orders: Topic[Any]
) -> None:
    assert find_leader(backend, GROUP) == LeaderFound(GROUP, None)
    won = elect(backend, "p1", Elect(GROUP, 0), PartitionUnits(backend))
    assert isinstance(won, Elected)
    assert won.grants == ()
    lost = elect(backend, "p2", Elect(GROUP, 0), PartitionUnits(backend))
    assert lost == LeaderFound(GROUP, LeaderEntry("p1", won.term)) == find_leader(backend, GROUP)


def test_a_new_term_is_higher_and_finds_the_grants_of_the_old(
    backend: Backend, orders: Topic[Any]
) -> None:
    first = lead(backend)
    fence = owner(backend, first, "orders/0.1")
    second = elect(backend, "p2", Elect(GROUP, first.term), PartitionUnits(backend))
    assert isinstance(second, Elected)
    assert second.term > first.term
    assert second.grants == (StoredGrant("orders/0.1", "b1", "p1", fence.epoch),)


def test_a_leader_that_resigned_leaves_no_entry_and_a_deposed_one_cannot_resign(
    backend: Backend, orders: Topic[Any]
) -> None:
    first = lead(backend)
    second = lead(backend, "p2")
    resign(backend, GROUP, first.term)
    assert find_leader(backend, GROUP).entry == LeaderEntry("p2", second.term)
    resign(backend, GROUP, second.term)
    assert find_leader(backend, GROUP).entry is None


def test_a_watch_shows_leaders_that_come_and_go(backend: Backend, orders: Topic[Any]) -> None:
    before = backend.store.commit(Change())
    won = lead(backend)
    [entry] = backend.store.watch(LEADERS, before)
    assert leader_found(entry) == LeaderFound(GROUP, LeaderEntry("p1", won.term))
    resign(backend, GROUP, won.term)
    [entry] = backend.store.watch(LEADERS, before)
    assert leader_found(entry) == LeaderFound(GROUP, None, removed_at=entry.version)
    assert entry.version > won.term


def test_a_deleted_group_has_no_leader(backend: Backend, orders: Topic[Any]) -> None:
    delete_group(backend, GROUP)
    with pytest.raises(UnknownGroup):
        elect(backend, "p1", Elect(GROUP, 0), PartitionUnits(backend))


def test_the_new_owner_of_a_unit_may_write_and_the_former_may_not(
    backend: Backend, orders: Topic[Any]
) -> None:
    leader = lead(backend)
    old = owner(backend, leader, "orders/0.0")
    ack(backend, "orders/0.0", 0, 2, old)
    moved = grant(backend, leader, "orders/0.0", replaces=old.epoch)
    assert isinstance(moved, GrantsCommitted)
    with pytest.raises(Fenced):
        ack(backend, "orders/0.0", 2, 4, old)
    ack(backend, "orders/0.0", 2, 3, Fence(old.name, moved.epoch))
    assert marks(backend, "orders/0.0") == [3]


def test_a_consumer_whose_unit_was_freed_may_not_write(
    backend: Backend, orders: Topic[Any]
) -> None:
    leader = lead(backend)
    fence = owner(backend, leader, "orders/0.0")
    versions = read_basis(backend, GROUP).versions
    freed = CommitGrants(GROUP, 7, leader.term, versions, (), (("orders/0.0", fence.epoch),))
    assert isinstance(commit_grants(backend, freed), GrantsCommitted)
    assert standing_grants(backend, GROUP) == ()
    with pytest.raises(Fenced):
        backend.commit(Transaction(fence=fence))
    assert commit_grants(backend, freed) == GrantsRefused(GROUP, 7, deposed=False)


def test_a_deposed_leader_grants_nothing(backend: Backend, orders: Topic[Any]) -> None:
    old = lead(backend)
    lead(backend, "p2")
    assert grant(backend, old, "orders/0.0") == GrantsRefused(GROUP, 1, deposed=True)
    assert read_grants(backend, GROUP, old.term) == GrantsRead(GROUP, (), deposed=True)
    assert backend.store.get(grant_key(GROUP, "orders/0.0")) is None


def test_a_deposed_leader_learns_of_it_also_when_its_basis_changed(
    backend: Backend, orders: Topic[Any]
) -> None:
    old, basis = lead(backend), read_basis(backend, GROUP)
    orders.scale(4)
    lead(backend, "p2")
    assert grant(backend, old, "orders/0.0", basis) == GrantsRefused(GROUP, 1, deposed=True)


def test_a_grant_replaces_another_only_if_the_leader_knows_it(
    backend: Backend, orders: Topic[Any]
) -> None:
    leader = lead(backend)
    fence = owner(backend, leader, "orders/0.0")
    assert grant(backend, leader, "orders/0.0") == GrantsRefused(GROUP, 1, deposed=False)
    read = read_grants(backend, GROUP, leader.term)
    assert read == GrantsRead(
        GROUP, (StoredGrant("orders/0.0", "b1", "p1", fence.epoch),), deposed=False
    )


def test_all_grants_of_a_commit_have_one_epoch_or_none_is_made(
    backend: Backend, orders: Topic[Any]
) -> None:
    leader = lead(backend)
    versions = read_basis(backend, GROUP).versions
    grants = tuple(NewGrant(f"orders/0.{i}", f"b{i}", "p1", 0) for i in range(2))
    done = commit_grants(backend, CommitGrants(GROUP, 3, leader.term, versions, grants, ()))
    assert isinstance(done, GrantsCommitted)
    assert {each.epoch for each in standing_grants(backend, GROUP)} == {done.epoch}
    for number in range(2):
        fence = Fence(unit_fence(GROUP, f"orders/0.{number}"), done.epoch)
        backend.commit(Transaction(fence=fence))
    again = commit_grants(backend, CommitGrants(GROUP, 4, leader.term, versions, grants, ()))
    assert again == GrantsRefused(GROUP, 4, deposed=False)


def _fail_with(
    monkeypatch: pytest.MonkeyPatch, backend: MemoryBackend, error: Exception, after: bool
) -> None:
    commit: Callable[[Change], int] = backend.store.commit

    def failing(change: Change) -> int:
        if after:
            commit(change)
        raise error

    monkeypatch.setattr(backend.store, "commit", failing)


@pytest.mark.parametrize(
    ("error", "done"), [(OutcomeUnknown("cut"), True), (BackendUnavailable("no lock"), False)]
)
def test_when_the_store_fails_the_outcome_is_unknown(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock, error: Exception, done: bool
) -> None:
    backend = MemoryBackend()
    Hub.from_backend(backend).create_topic("orders", partitions=1)
    open_group(backend, GROUP, "orders", "earliest", clock)
    leader = lead(backend)
    with monkeypatch.context() as patched:
        _fail_with(patched, backend, error, after=done)
        assert grant(backend, leader, "orders/0.0") == GrantsUnknown(GROUP, 1)
    assert bool(read_grants(backend, GROUP, leader.term).grants) is done
