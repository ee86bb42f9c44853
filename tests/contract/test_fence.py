"""A stale owner cannot write."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, Fence, TableKey, Transaction, raise_fence
from tailrace.errors import Fenced
from tests.support.records import P0, P1, append, commit, create, records, values

KEY = TableKey("progress", b"c7")


def test_the_holder_of_a_fence_may_write_as_often_as_it_likes(backend: Backend) -> None:
    create(backend)
    fence = raise_fence(backend.store, "unit")
    append(backend, P0, b"a", fence=fence)
    append(backend, P0, b"b", fence=fence)
    assert values(backend, P0) == [b"a", b"b"]


def test_each_raise_gives_a_higher_epoch(backend: Backend) -> None:
    epochs = [raise_fence(backend.store, "unit").epoch for _ in range(5)]
    assert epochs == sorted(set(epochs))


def test_an_owner_whose_fence_was_raised_writes_nothing(backend: Backend) -> None:
    create(backend)
    stale = raise_fence(backend.store, "unit")
    current = raise_fence(backend.store, "unit")
    writes = Transaction(((P0, records(b"a")), (P1, records(b"b"))), {KEY: b"1"}, fence=stale)
    with pytest.raises(Fenced) as caught:
        backend.commit(writes)
    assert (caught.value.epoch, caught.value.current) == (stale.epoch, current.epoch)
    assert (values(backend, P0), values(backend, P1)) == ([], [])
    assert backend.table.get(*KEY) is None
    append(backend, P0, b"c", fence=current)
    assert values(backend, P0) == [b"c"]


@pytest.mark.parametrize("distance", [-1, 1])
def test_only_the_very_epoch_passes(backend: Backend, distance: int) -> None:
    create(backend)
    name, epoch = raise_fence(backend.store, "unit")
    with pytest.raises(Fenced):
        append(backend, P0, b"a", fence=Fence(name, epoch + distance))
    assert values(backend, P0) == []


def test_a_fence_that_was_never_raised_refuses_every_epoch(backend: Backend) -> None:
    create(backend)
    for epoch in (0, 1):
        with pytest.raises(Fenced):
            append(backend, P0, b"a", fence=Fence("unit", epoch))
    assert values(backend, P0) == []


def test_a_raise_leaves_other_names_alone(backend: Backend) -> None:
    create(backend)
    mine = raise_fence(backend.store, "unit")
    for other in ("unit2", "uni", "other"):
        raise_fence(backend.store, other)
    append(backend, P0, b"a", fence=mine)
    append(backend, P0, b"plain")
    assert values(backend, P0) == [b"a", b"plain"]


def test_a_stale_owner_cannot_move_a_table_either(backend: Backend) -> None:
    stale = raise_fence(backend.store, "unit")
    commit(backend, Transaction(table={KEY: b"1"}, fence=stale))
    raise_fence(backend.store, "unit")
    with pytest.raises(Fenced):
        backend.commit(Transaction(table={KEY: b"2"}, fence=stale))
    assert backend.table.get(*KEY) == b"1"
