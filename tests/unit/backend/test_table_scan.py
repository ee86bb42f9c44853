"""Tables that are longer than one page."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Fence, TableKey, Transaction, raise_fence
from tailrace.backend.table_scan import PAGE_ENTRIES, clear_table, scan_all, scan_prefix
from tailrace.errors import Fenced
from tailrace.testing import MemoryBackend


def filled(count: int) -> MemoryBackend:
    backend = MemoryBackend()
    entries = {TableKey("t", b"a/%06d" % number): b"" for number in range(count)}
    backend.commit(
        Transaction(table={**entries, TableKey("t", b"b"): b"", TableKey("u", b"a/"): b""})
    )
    return backend


@pytest.mark.parametrize(
    "count", [0, 1, PAGE_ENTRIES - 1, PAGE_ENTRIES, PAGE_ENTRIES + 1, 2 * PAGE_ENTRIES]
)
def test_every_entry_is_read_once_in_order(count: int) -> None:
    table = filled(count).table
    keys = [b"a/%06d" % number for number in range(count)]
    assert [key for key, _ in scan_prefix(table, "t", b"a/")] == keys
    assert [key for key, _ in scan_all(table, "t")] == [*keys, b"b"]
    assert [key for key, _ in scan_all(table, "t", b"a/000001", b"b")] == keys[1:]


def test_a_table_is_cleared_and_others_are_kept() -> None:
    backend = filled(2 * PAGE_ENTRIES + 1)
    clear_table(backend, "t")
    assert backend.table.scan("t") == []
    assert len(backend.table.scan("u")) == 1


def test_a_stale_fence_clears_nothing() -> None:
    backend = filled(3)
    old: Fence = raise_fence(backend.store, "owner")
    raise_fence(backend.store, "owner")
    with pytest.raises(Fenced):
        clear_table(backend, "t", old)
    assert len(backend.table.scan("t")) == 4
