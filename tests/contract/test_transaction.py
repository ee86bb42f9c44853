"""Appends and table writes commit together, or not at all."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, TableKey, Transaction
from tailrace.errors import Conflict, Error, UnknownTopic
from tailrace.message import Partition
from tests.support.records import P0, P1, P2, append, columns, commit, create, records, values

KEY = TableKey("progress", b"c7")


def test_appends_and_table_writes_of_a_transaction_are_all_there(backend: Backend) -> None:
    create(backend)
    commit(backend, Transaction(((P0, records(b"a")), (P1, records(b"b"))), {KEY: b"1"}))
    assert (values(backend, P0), values(backend, P1)) == ([b"a"], [b"b"])
    assert backend.table.get(*KEY) == b"1"


def test_the_ranges_of_appends_are_returned_in_their_order(backend: Backend) -> None:
    create(backend)
    appends = ((P2, records(b"a", b"b")), (P0, records(b"c")), (P1, columns(records(b"d"))))
    ranges = commit(backend, Transaction(appends))
    assert [(landed.partition, landed.count) for landed in ranges] == [(P2, 2), (P0, 1), (P1, 1)]


def test_several_appends_to_one_partition_land_in_their_order(backend: Backend) -> None:
    create(backend)
    appends = (
        (P0, records(b"a", b"b")),
        (P1, records(b"z")),
        (P0, columns(records(b"c"))),
        (P0, records(b"d")),
    )
    ranges = commit(backend, Transaction(appends))
    assert values(backend, P0) == [b"a", b"b", b"c", b"d"]
    of_p0 = [landed for landed in ranges if landed.partition == P0]
    assert of_p0[0].end <= of_p0[1].start
    assert of_p0[1].end <= of_p0[2].start


def test_an_empty_transaction_writes_nothing(backend: Backend) -> None:
    assert backend.commit(Transaction()) == []


def test_a_transaction_may_hold_table_writes_alone(backend: Backend) -> None:
    assert backend.commit(Transaction(table={KEY: b"1"})) == []
    assert backend.table.get(*KEY) == b"1"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_unknown_partition_rejects_the_whole_transaction(
    backend: Backend, position: int
) -> None:
    create(backend)
    appends = [(P0, records(b"a")), (P1, records(b"b"))]
    appends.insert(position, (Partition("unknown", 0, 0), records(b"c")))
    with pytest.raises(UnknownTopic):
        backend.commit(Transaction(tuple(appends), {KEY: b"1"}))
    assert (values(backend, P0), values(backend, P1)) == ([], [])
    assert backend.table.get(*KEY) is None


def test_a_key_that_must_be_absent_rejects_the_transaction_and_its_value_is_returned(
    backend: Backend,
) -> None:
    create(backend)
    commit(backend, Transaction(table={KEY: b"first"}))
    again = Transaction(((P0, records(b"a")),), {KEY: b"second"}, absent=(KEY,))
    with pytest.raises(Conflict) as caught:
        backend.commit(again)
    assert caught.value.value == b"first"
    assert backend.table.get(*KEY) == b"first"
    assert values(backend, P0) == []


def test_a_key_that_must_be_absent_may_be_written_by_the_same_transaction(
    backend: Backend,
) -> None:
    create(backend)
    once = Transaction(((P0, records(b"a")),), {KEY: b"first"}, absent=(KEY,))
    commit(backend, once)
    with pytest.raises(Conflict):
        backend.commit(once)
    assert values(backend, P0) == [b"a"]


def test_a_key_that_was_removed_is_absent(backend: Backend) -> None:
    commit(backend, Transaction(table={KEY: b"first"}))
    commit(backend, Transaction(table={KEY: None}))
    commit(backend, Transaction(table={KEY: b"second"}, absent=(KEY,)))
    assert backend.table.get(*KEY) == b"second"


def test_after_a_refused_transaction_the_partitions_take_appends_at_once(
    backend: Backend,
) -> None:
    create(backend)
    with pytest.raises(Error):
        backend.commit(
            Transaction(((P0, records(b"lost")), (Partition("unknown", 0, 0), records(b"lost"))))
        )
    append(backend, P0, b"kept")
    assert values(backend, P0) == [b"kept"]
