"""Many threads at once: nothing lost, nothing duplicated, order kept, fences exact."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tailrace.backend.contract import Backend, Change, TableKey, Transaction, raise_fence
from tailrace.errors import Conflict, Fenced, Sealed
from tests.support.records import (
    P0,
    P1,
    P2,
    TOPIC,
    append,
    columns,
    commit,
    create,
    records,
    values,
)

THREADS = 4
ROUNDS = 25
ROUNDS_MAX = 5000


def together(*works: Callable[[], object]) -> None:
    """Run all at once, behind one barrier, and raise the first error of any."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(run, work) for work in works]:
            future.result()


def test_threads_appending_to_the_same_partitions_lose_nothing_and_keep_their_order(
    backend: Backend,
) -> None:
    create(backend)

    def produce(thread: int) -> None:
        for i in range(ROUNDS):
            rows = records(b"%d:%d" % (thread, 2 * i), b"%d:%d" % (thread, 2 * i + 1))
            order = ((P0, rows), (P1, columns(rows)), (P2, rows))
            commit(backend, Transaction(order if thread % 2 else order[::-1]))

    together(*(lambda thread=thread: produce(thread) for thread in range(THREADS)))
    for partition in (P0, P1, P2):
        stored = [tuple(map(int, value.split(b":"))) for value in values(backend, partition)]
        for thread in range(THREADS):
            assert [i for t, i in stored if t == thread] == list(range(2 * ROUNDS))
        assert len(stored) == THREADS * 2 * ROUNDS


def test_of_many_threads_that_expect_a_version_one_is_done(backend: Backend) -> None:
    def count() -> None:
        for _ in range(ROUNDS):
            while True:
                entry = backend.store.get("counter")
                value, version = (
                    (0, 0) if entry is None else (int(entry.value or b""), entry.version)
                )
                try:
                    backend.store.commit(
                        Change(expect={"counter": version}, writes={"counter": b"%d" % (value + 1)})
                    )
                    break
                except Conflict:
                    continue

    together(*[count] * THREADS)
    entry = backend.store.get("counter")
    assert entry is not None
    assert entry.value == b"%d" % (THREADS * ROUNDS)


def test_of_many_threads_that_need_a_key_absent_one_is_done(backend: Backend) -> None:
    create(backend)
    refused = []

    def push_once(thread: int) -> None:
        for i in range(ROUNDS):
            key = TableKey("dedup", b"%d" % i)
            once = Transaction(((P0, records(b"%d" % i)),), {key: b"%d" % thread}, absent=(key,))
            try:
                commit(backend, once)
            except Conflict as conflict:
                refused.append(conflict.value)

    together(*(lambda thread=thread: push_once(thread) for thread in range(THREADS)))
    assert sorted(map(int, values(backend, P0))) == list(range(ROUNDS))
    assert len(refused) == (THREADS - 1) * ROUNDS
    assert None not in refused


@pytest.mark.parametrize("round_number", range(5))
def test_once_a_fence_is_raised_nothing_of_the_old_epoch_becomes_visible(
    backend: Backend, round_number: int
) -> None:
    create(backend)
    old = raise_fence(backend.store, "unit")
    seen: list[list[bytes]] = []

    def write() -> None:
        with suppress(Fenced):
            for _ in range(ROUNDS_MAX):
                append(backend, P0, b"old", fence=old)
            raise AssertionError("the old epoch was never refused")

    def depose() -> None:
        append(backend, P1, b"gives the others time to write")
        new = raise_fence(backend.store, "unit")
        seen.append(values(backend, P0))
        append(backend, P0, b"new", fence=new)

    together(write, write, depose)
    assert values(backend, P0) == [*seen[0], b"new"]


def test_once_sealed_nothing_becomes_visible_behind_the_final_end(backend: Backend) -> None:
    create(backend)
    acknowledged: list[int] = []
    final = []

    def write() -> None:
        with suppress(Sealed):
            for _ in range(ROUNDS_MAX):
                acknowledged.append(append(backend, P0, b"a").start)
            raise AssertionError("no append was ever refused")

    def seal() -> None:
        append(backend, P1, b"gives the others time to write")
        backend.store.commit(Change(seal=(TOPIC,)))
        final.append((backend.log.bounds(P0), len(values(backend, P0))))

    together(write, write, seal)
    assert final == [(backend.log.bounds(P0), len(values(backend, P0)))]
    assert len(acknowledged) == len(values(backend, P0))


def test_a_reader_sees_each_transaction_of_a_partition_wholly(backend: Backend) -> None:
    create(backend)
    finished = threading.Event()

    def produce() -> None:
        for i in range(ROUNDS):
            commit(backend, Transaction(((P0, records(*[b"%d" % i] * 3)),)))
        finished.set()

    def consume() -> None:
        while not finished.is_set():
            assert len(values(backend, P0)) % 3 == 0

    together(produce, consume)
    assert len(values(backend, P0)) == 3 * ROUNDS
