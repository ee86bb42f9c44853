"""Threads of one process that push at the same time share a sync and a commit, and nothing else."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tailrace.backend.contract import Change, TableKey, Transaction, raise_fence
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import BackendUnavailable, Conflict, Fenced, HubClosed
from tailrace.log.disk import Disk
from tests.contract.records import P0, P1, append, create, records, values
from tests.scale import count

pytestmark = pytest.mark.part("fences")

T = TypeVar("T")

THREADS = 64
PUSHES_A_SYNC = 8
ANSWER_S = 30.0


class _CountingDisk(Disk):
    """The real disk, with its syncs counted."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)


class _Gate:
    """The `reach` of a backend that waits at a point for the test, every time it gets there."""

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


@contextmanager
def _group(backend: EmbeddedBackend, gate: _Gate, point: str) -> Iterator[Callable[..., Future[T]]]:
    """Hold a first commit at `point`; what is submitted inside becomes the next group, which is
    held there when the block ends."""
    with ThreadPoolExecutor(16) as pool:
        queue = backend._committer._queue
        gate.point = point
        first = pool.submit(append, backend, P1, b"first")
        gate.await_arrival()

        def submit(work: Callable[[], T]) -> Future[T]:
            length = len(queue)
            future = pool.submit(work)
            deadline = time.monotonic() + ANSWER_S
            while len(queue) == length:
                assert time.monotonic() < deadline, "it was not queued"
                time.sleep(0.001)
            return future

        yield submit
        gate.open.release()
        first.result()
        gate.await_arrival()


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


def test_one_that_is_fenced_meanwhile_drops_out_of_its_group_alone(tmp_path: Path) -> None:
    gate = _Gate()
    with (
        closing(EmbeddedBackend.open(tmp_path, reach=gate)) as backend,
        closing(EmbeddedBackend.open(tmp_path)) as other,
    ):
        create(backend)
        old = raise_fence(backend.store, "unit")
        with _group(backend, gate, "synced") as submit:
            before = submit(lambda: backend.commit(Transaction(((P0, records(b"before")),))))
            fenced = submit(
                lambda: backend.commit(
                    Transaction(((P0, records(b"fenced")),), {TableKey("t", b"k"): b"v"}, old)
                )
            )
            behind = submit(lambda: backend.commit(Transaction(((P0, records(b"behind")),))))
            beside = submit(lambda: backend.commit(Transaction(((P1, records(b"beside")),))))
            change = submit(lambda: backend.store.commit(Change(writes={"k": b"v"})))
            taken = submit(lambda: backend.store.commit(Change({"k": 99}, {"k": b"w"})))
        raise_fence(other.store, "unit")
        gate.point = None
        gate.open.release()
        with pytest.raises(Fenced):
            fenced.result()
        with pytest.raises(Conflict):
            taken.result()
        ranges = [before.result()[0], behind.result()[0], beside.result()[0]]
        assert [landed.start for landed in ranges] == [0, 1, 1]
        assert change.result() > old.epoch
        assert values(other, P0) == [b"before", b"behind"]
        assert values(other, P1) == [b"first", b"beside"]
        assert other.table.get("t", b"k") is None


def test_a_group_commits_once_and_wakes_once(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    gate = _Gate()

    def reach(point: str) -> None:
        reached[point] += 1
        gate(point)

    with closing(EmbeddedBackend.open(tmp_path, reach=reach)) as backend:
        create(backend)
        with _group(backend, gate, "locked") as submit:
            singles = [
                submit(lambda n=n: backend.commit(Transaction(((P0, records(b"%d" % n)),))))
                for n in range(10)
            ]
            reached.clear()
        gate.point = None
        gate.open.release()
        starts = [single.result()[0].start for single in singles]
        assert starts == list(range(10))
        assert reached["synced"] == reached["committed"] == 2


def test_one_that_waits_behind_a_commit_for_too_long_gives_up_and_is_not_written(
    tmp_path: Path,
) -> None:
    gate = _Gate()
    with closing(EmbeddedBackend.open(tmp_path, lock_timeout_s=0.2, reach=gate)) as backend:
        create(backend)
        gate.point = "written"
        with ThreadPoolExecutor(2) as pool:
            slow = pool.submit(append, backend, P0, b"slow")
            gate.await_arrival()
            with pytest.raises(BackendUnavailable):
                append(backend, P1, b"impatient")
            gate.point = None
            gate.open.release()
            slow.result()
        append(backend, P1, b"later")
        assert values(backend, P1) == [b"later"]


def test_closing_waits_for_the_commit_under_way_and_refuses_those_behind_it(
    tmp_path: Path,
) -> None:
    gate = _Gate()
    backend = EmbeddedBackend.open(tmp_path, reach=gate)
    create(backend)
    with ThreadPoolExecutor(1) as pool:
        with _group(backend, gate, "written") as submit:
            behind = submit(lambda: backend.commit(Transaction(((P0, records(b"behind")),))))
            closing_ = pool.submit(backend.close)
        gate.point = None
        gate.open.release()
        closing_.result()
        try:
            behind.result()
            expected = [b"behind"]
        except HubClosed:
            expected = []
    with closing(EmbeddedBackend.open(tmp_path)) as reopened:
        assert values(reopened, P1) == [b"first"]
        assert values(reopened, P0) == expected
