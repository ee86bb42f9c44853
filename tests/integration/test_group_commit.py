"""Threads of one process that push at the same time share one sync and one commit."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tailrace.backend.contract import Change, StorageTopic, TableKey, Transaction, raise_fence
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import BackendUnavailable, Conflict, Fenced, HubClosed, Sealed
from tailrace.log.disk import Disk
from tailrace.message import Partition, Range
from tests.support.counts import count
from tests.support.records import P0, P1, append, create, records, values
from tests.support.waiting import until

pytestmark = pytest.mark.part("fences")

T = TypeVar("T")

THREADS = 64
PUSHES_A_SYNC = 8
ANSWER_S = 30.0
LOCK_TIMEOUT_S = 4.0
"""Longer than a busy machine needs from queueing a transaction to trying its locks."""
SEALED = StorageTopic("sealed", 0, 1)
SEALED_P0 = Partition("sealed", 0, 0)


class _CountingDisk(Disk):
    """The real disk, with its syncs counted."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)


class _Gate:
    """The `reach` callback of a backend, which waits for the test whenever it reaches a point."""

    def __init__(self) -> None:
        self.point: str | None = None
        self.arrived = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.arrived.release()
            assert self.open.acquire(timeout=ANSWER_S)

    def await_arrival(self) -> None:
        assert self.arrived.acquire(timeout=ANSWER_S)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


class _Group:
    """Holds a first commit at a point of its way. What is submitted inside becomes the next group,
    which is held at that point when the block ends."""

    def __init__(
        self, pool: ThreadPoolExecutor, backend: EmbeddedBackend, gate: _Gate, point: str
    ) -> None:
        self._pool = pool
        self._backend = backend
        self._gate = gate
        self._point = point

    def __enter__(self) -> _Group:
        self._gate.point = self._point
        self._first = self._pool.submit(append, self._backend, P1, b"first")
        self._gate.await_arrival()
        return self

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a call in a thread, and return when it waits in the queue."""
        queue = self._backend._committer._queue
        length = len(queue)
        future = self._pool.submit(work)
        until(lambda: len(queue) != length, "it was not queued")
        return future

    def push(self, partition: Partition, value: bytes, **more: Any) -> Future[list[Range]]:
        """Append one record in a thread."""
        transaction = Transaction(((partition, records(value)),), **more)
        return self.submit(lambda: self._backend.commit(transaction))

    def __exit__(self, *_error: object) -> None:
        self._gate.open.release()
        self._first.result()
        self._gate.await_arrival()


def test_threads_that_push_at_once_share_syncs_and_keep_their_order(tmp_path: Path) -> None:
    disk = _CountingDisk()
    pushes = count("durable_pushes_a_thread", test=20, soak=200)
    with closing(EmbeddedBackend.open(tmp_path, sync="batch", disk=disk)) as backend:
        create(backend)
        append(backend, P0, b"0:first")
        disk.syncs = 0
        start = threading.Barrier(THREADS)

        def push(thread: int) -> None:
            start.wait()
            for number in range(pushes):
                backend.commit(Transaction(((P0, records(b"%d:%d" % (thread, number))),)))

        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(push, thread) for thread in range(1, THREADS + 1)]:
                done.result()
        print(f"{THREADS * pushes} durable pushes of {THREADS} threads: {disk.syncs} syncs")
        stored = [value.split(b":") for value in values(backend, P0)]
    order = {thread: [int(n) for t, n in stored if t == b"%d" % thread] for thread in range(1, 65)}
    assert set(map(tuple, order.values())) == {tuple(range(pushes))}
    assert THREADS * pushes / disk.syncs >= PUSHES_A_SYNC


def test_a_transaction_fenced_meanwhile_leaves_its_group_commit_alone(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = _Gate()
    with (
        closing(EmbeddedBackend.open(tmp_path, reach=gate)) as backend,
        closing(EmbeddedBackend.open(tmp_path)) as other,
    ):
        create(backend)
        old = raise_fence(backend.store, "unit")
        with _Group(pool, backend, gate, "synced") as group:
            before = group.push(P0, b"before")
            fenced = group.push(P0, b"fenced", table={TableKey("t", b"k"): b"v"}, fence=old)
            behind = group.push(P0, b"behind")
            beside = group.push(P1, b"beside")
            change = group.submit(lambda: backend.store.commit(Change(writes={"k": b"v"})))
            taken = group.submit(lambda: backend.store.commit(Change({"k": 99}, {"k": b"w"})))
        raise_fence(other.store, "unit")
        gate.point = None
        gate.open.release()
        with pytest.raises(Fenced):
            fenced.result()
        with pytest.raises(Conflict):
            taken.result()
        landed = [before.result(), behind.result(), beside.result()]
        assert [(found.partition, found.start) for [found] in landed] == [(P0, 0), (P0, 1), (P1, 1)]
        assert change.result() > old.epoch
        assert values(other, P0) == [b"before", b"behind"]
        assert values(other, P1) == [b"first", b"beside"]
        assert other.table.get("t", b"k") is None


def test_a_partition_locked_elsewhere_fails_only_the_transactions_that_need_it(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate, held = _Gate(), _Gate()
    with (
        closing(
            EmbeddedBackend.open(tmp_path, lock_timeout_s=LOCK_TIMEOUT_S, reach=gate)
        ) as backend,
        closing(EmbeddedBackend.open(tmp_path, reach=held)) as other,
    ):
        create(backend)
        held.point = "locked"
        holder = pool.submit(append, other, P0, b"holder")
        held.await_arrival()
        with _Group(pool, backend, gate, "locked") as group:
            stuck = group.push(P0, b"stuck")
            beside = group.push(P1, b"beside")
        gate.point = None
        gate.open.release()
        assert beside.result()[0].partition == P1
        with pytest.raises(BackendUnavailable):
            stuck.result()
        held.open.release()
        holder.result()
        assert values(backend, P0) == [b"holder"]
        assert values(backend, P1) == [b"first", b"beside"]


def test_a_transaction_refused_by_a_seal_leaves_nothing_in_its_group_commit(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = _Gate()
    with (
        closing(EmbeddedBackend.open(tmp_path, reach=gate)) as backend,
        closing(EmbeddedBackend.open(tmp_path)) as other,
    ):
        create(backend)
        create(backend, SEALED)
        both = Transaction(((P0, records(b"in part")), (SEALED_P0, records(b"behind a seal"))))
        with _Group(pool, backend, gate, "synced") as group:
            refused = group.submit(lambda: backend.commit(both))
            behind = group.push(P0, b"behind")
        other.store.commit(Change(seal=(SEALED,)))
        gate.point = None
        gate.open.release()
        with pytest.raises(Sealed):
            refused.result()
        assert [found.start for found in behind.result()] == [0]
        assert values(other, P0) == [b"behind"]
        assert values(other, SEALED_P0) == []


def test_a_group_commit_is_synced_once_and_committed_once(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    reached: Counter[str] = Counter()
    gate = _Gate()

    def reach(point: str) -> None:
        reached[point] += 1
        gate(point)

    with closing(EmbeddedBackend.open(tmp_path, reach=reach)) as backend:
        create(backend)
        with _Group(pool, backend, gate, "locked") as group:
            singles = [group.push(P0, b"%d" % number) for number in range(10)]
            reached.clear()
        gate.point = None
        gate.open.release()
        assert [single.result()[0].start for single in singles] == list(range(10))
    assert reached["synced"] == reached["committed"] == 2


def test_a_transaction_that_waits_too_long_behind_a_commit_gives_up_and_is_not_written(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = _Gate()
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=0.2, reach=gate)) as backend:
        create(backend)
        gate.point = "written"
        slow = pool.submit(append, backend, P0, b"slow")
        gate.await_arrival()
        with pytest.raises(BackendUnavailable):
            append(backend, P1, b"impatient")
        gate.point = None
        gate.open.release()
        slow.result()
        append(backend, P1, b"later")
        assert values(backend, P1) == [b"later"]


def test_closing_waits_for_the_running_commit(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    gate = _Gate()
    backend = EmbeddedBackend.open(tmp_path, reach=gate)
    create(backend)
    with _Group(pool, backend, gate, "written") as group:
        behind = group.push(P0, b"behind")
    closed = pool.submit(backend.close)
    with pytest.raises(TimeoutError):
        closed.result(0.1)
    gate.point = None
    gate.open.release()
    closed.result()
    behind.result()
    with pytest.raises(HubClosed):
        backend.commit(Transaction(((P0, records(b"later")),)))
    with closing(EmbeddedBackend.open(tmp_path)) as reopened:
        assert values(reopened, P0) == [b"behind"]


def test_a_thread_that_is_interrupted_while_it_waits_blocks_no_other(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = _Gate()
    main = threading.main_thread().ident
    assert main is not None
    with closing(EmbeddedBackend.open(tmp_path, reach=gate)) as backend:
        create(backend)
        gate.point = "written"
        slow = pool.submit(append, backend, P1, b"slow")
        gate.await_arrival()
        queue = backend._committer._queue

        def interrupt() -> None:
            until(lambda: queue, "it was not queued")
            time.sleep(0.1)  # until it waits for its turn
            signal.pthread_kill(main, signal.SIGINT)

        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            append(backend, P0, b"interrupted")
        gate.point = None
        gate.open.release()
        slow.result()
        append(backend, P0, b"later")
        assert values(backend, P0) == [b"later"]
