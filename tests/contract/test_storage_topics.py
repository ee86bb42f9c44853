"""Creating, sealing and deleting storage topics, in one step with store entries."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, Change, StorageTopic, TableKey, Transaction
from tailrace.errors import Conflict, Sealed, UnknownTopic
from tailrace.message import Partition
from tests.support.records import (
    CHUNK_BYTES,
    P0,
    P1,
    P2,
    TOPIC,
    append,
    commit,
    create,
    read,
    records,
    values,
)

NEXT = StorageTopic("orders", 1, 2)
NEXT_P0 = Partition("orders", 1, 0)


def test_creating_with_a_store_entry_is_one_step(backend: Backend) -> None:
    version = backend.store.commit(Change(writes={"topic/orders": b"{}"}, create=(TOPIC,)))
    entry = backend.store.get("topic/orders")
    assert entry is not None
    assert entry.version == version
    assert len(backend.log.bounds_of(TOPIC)) == TOPIC.partitions


def test_bounds_of_a_storage_topic_are_those_of_its_partitions(backend: Backend) -> None:
    create(backend)
    append(backend, P1, b"a", b"b")
    assert backend.log.bounds_of(TOPIC) == [backend.log.bounds(p) for p in (P0, P1, P2)]


def test_bounds_of_an_unknown_storage_topic_are_refused(backend: Backend) -> None:
    create(backend)
    with pytest.raises(UnknownTopic):
        backend.log.bounds_of(NEXT)


def test_a_storage_topic_that_exists_is_not_created_again(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    with pytest.raises(Conflict):
        backend.store.commit(Change(writes={"k": b"v"}, create=(NEXT, TOPIC)))
    assert backend.store.get("k") is None
    assert values(backend, P0) == [b"a"]
    with pytest.raises(UnknownTopic):
        backend.log.bounds(NEXT_P0)


def test_a_sealed_storage_topic_takes_no_more_records(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    backend.store.commit(Change(seal=(TOPIC,)))
    for partition in (P0, P1):
        with pytest.raises(Sealed) as caught:
            append(backend, partition, b"late")
        assert (caught.value.topic, caught.value.storage) == (TOPIC.topic, TOPIC.storage)
    assert (values(backend, P0), values(backend, P1)) == ([b"a"], [])


def test_a_seal_fixes_the_bounds_for_ever(backend: Backend) -> None:
    create(backend)
    landed = append(backend, P0, b"a", b"b")
    backend.store.commit(Change(seal=(TOPIC,)))
    final = backend.log.bounds_of(TOPIC)
    assert all(bounds.sealed for bounds in final)
    assert final[P0.number].end >= landed.end
    with pytest.raises(Sealed):
        append(backend, P0, b"late")
    assert backend.log.bounds_of(TOPIC) == final
    assert values(backend, P0) == [b"a", b"b"]
    at_end = backend.log.read(P0, final[P0.number].end, CHUNK_BYTES)
    assert (at_end.records.num_rows, at_end.next_offset) == (0, final[P0.number].end)


def test_sealing_again_changes_nothing(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    backend.store.commit(Change(seal=(TOPIC,)))
    final = backend.log.bounds_of(TOPIC)
    backend.store.commit(Change(seal=(TOPIC,)))
    assert backend.log.bounds_of(TOPIC) == final


def test_one_sealed_partition_rejects_the_whole_transaction(backend: Backend) -> None:
    create(backend)
    create(backend, NEXT)
    backend.store.commit(Change(seal=(TOPIC,)))
    key = TableKey("progress", b"c7")
    for appends in (
        ((NEXT_P0, records(b"a")), (P0, records(b"b"))),
        ((P0, records(b"b")), (NEXT_P0, records(b"a"))),
    ):
        with pytest.raises(Sealed):
            backend.commit(Transaction(appends, {key: b"1"}))
    assert values(backend, NEXT_P0) == []
    assert backend.table.get(*key) is None


def test_the_pointer_moves_and_the_old_one_is_sealed_in_one_step(backend: Backend) -> None:
    create(backend)
    create(backend, NEXT)
    version = backend.store.commit(Change(expect={"pointer": 0}, writes={"pointer": b"0"}))
    backend.store.commit(
        Change(expect={"pointer": version}, writes={"pointer": b"1"}, seal=(TOPIC,))
    )
    append(backend, NEXT_P0, b"a")
    assert backend.log.bounds(P0).sealed
    assert not backend.log.bounds(NEXT_P0).sealed


def test_a_failed_expectation_creates_seals_and_deletes_nothing(backend: Backend) -> None:
    create(backend)
    append(backend, P0, b"a")
    third = StorageTopic("orders", 2, 1)
    create(backend, third)
    with pytest.raises(Conflict):
        backend.store.commit(
            Change(
                expect={"pointer": 7},
                writes={"pointer": b"1"},
                create=(NEXT,),
                seal=(TOPIC,),
                delete=(third,),
            )
        )
    assert backend.store.get("pointer") is None
    assert not backend.log.bounds(P0).sealed
    assert len(backend.log.bounds_of(third)) == 1
    with pytest.raises(UnknownTopic):
        backend.log.bounds(NEXT_P0)
    append(backend, P0, b"b")
    assert values(backend, P0) == [b"a", b"b"]


def test_a_deleted_storage_topic_is_unknown_and_the_others_stay(backend: Backend) -> None:
    create(backend)
    create(backend, NEXT)
    append(backend, P0, b"a")
    append(backend, NEXT_P0, b"b")
    backend.store.commit(Change(writes={"pointer": b"1"}, delete=(TOPIC,)))
    with pytest.raises(UnknownTopic):
        backend.log.bounds(P0)
    with pytest.raises(UnknownTopic):
        read(backend, P1)
    with pytest.raises(UnknownTopic):
        append(backend, P0, b"late")
    assert values(backend, NEXT_P0) == [b"b"]


def test_a_topic_created_again_refuses_appends_to_the_former_one(
    backend: Backend,
) -> None:
    known = backend.store.commit(Change(create=(TOPIC,)))
    append(backend, P0, b"old")
    backend.store.commit(Change(delete=(TOPIC,)))
    anew = backend.store.commit(Change(create=(TOPIC,)))
    stale = Transaction(((P0, records(b"stale")),), since={TOPIC.topic: known})
    with pytest.raises(UnknownTopic):
        backend.commit(stale)
    commit(backend, Transaction(((P0, records(b"new")),), since={TOPIC.topic: anew}))
    assert values(backend, P0) == [b"new"]


@pytest.mark.parametrize("change", [Change(seal=(NEXT,)), Change(delete=(NEXT,))])
def test_sealing_or_deleting_an_unknown_storage_topic_is_refused(
    backend: Backend, change: Change
) -> None:
    create(backend)
    with pytest.raises(UnknownTopic):
        backend.store.commit(Change(writes={"k": b"v"}, seal=change.seal, delete=change.delete))
    assert backend.store.get("k") is None
