"""The guarantees of the backend in memory beyond the contract."""

from __future__ import annotations

import threading

import pytest

from tailrace.backend.contract import Change, Entry
from tailrace.errors import HubClosed, WatchExpired
from tailrace.testing import MemoryBackend
from tailrace.testing.memory.store import REMOVALS_KEPT
from tests.support.records import CHUNK_BYTES, P0, append, create, read, values


def test_without_gaps_offsets_count_from_0() -> None:
    backend = MemoryBackend()
    create(backend)
    append(backend, P0, b"a", b"b")
    append(backend, P0, b"c")
    assert [row.offset for row in read(backend, P0)] == [0, 1, 2]
    assert backend.log.bounds(P0).end == 3


def test_every_nth_append_has_a_gap_before_and_behind_it() -> None:
    backend = MemoryBackend(gap_every=2)
    create(backend)
    for value in (b"a", b"b", b"c"):
        append(backend, P0, value)
    assert [row.offset for row in read(backend, P0)] == [1, 3, 5]
    assert backend.log.bounds(P0).end == 7


def test_a_gap_behind_the_last_record_is_a_chunk_without_records() -> None:
    backend = MemoryBackend(gap_every=1)
    create(backend)
    append(backend, P0, b"a")
    chunk = backend.log.read(P0, 2, CHUNK_BYTES)
    assert (chunk.records.num_rows, chunk.next_offset) == (0, 3)
    assert values(backend, P0) == [b"a"]


def test_the_newest_removals_are_remembered_and_no_more() -> None:
    store = MemoryBackend().store
    written = store.commit(Change(writes={f"k{i}": b"v" for i in range(REMOVALS_KEPT + 1)}))
    first = store.commit(Change(writes={"k0": None}))
    for i in range(1, REMOVALS_KEPT):
        store.commit(Change(writes={f"k{i}": None}))
    assert store.watch("k0", written) == [Entry("k0", None, first)]
    store.commit(Change(writes={f"k{REMOVALS_KEPT}": None}))
    with pytest.raises(WatchExpired) as caught:
        store.watch("k0", written)
    assert caught.value.floor == first
    assert len(store.watch("", first)) == REMOVALS_KEPT


def test_closing_wakes_waiting_threads() -> None:
    backend = MemoryBackend()
    follower = backend.follower()
    follower.arm()
    closer = threading.Timer(0.01, backend.close)
    closer.start()
    with pytest.raises(HubClosed):
        follower.wait(30.0)
    closer.join()
