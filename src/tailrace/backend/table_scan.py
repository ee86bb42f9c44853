"""Scans of tables that are longer than one page, and the removal of whole tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.backend.contract import Backend, Fence, Table, TableKey, Transaction

PAGE_ENTRIES: Final = 1000
"""The number of entries that one scan reads and one transaction removes."""


def scan_all(
    table: Table, name: str, start: bytes = b"", end: bytes | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a table from `start` up to, not including, `end`, in key order.

    Reads page by page: an entry that is written meanwhile may be missing.
    """
    while True:
        page = table.scan(name, start, end, PAGE_ENTRIES)
        yield from page
        if len(page) < PAGE_ENTRIES:
            return
        start = page[-1][0] + b"\0"


def scan_prefix(table: Table, name: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a table whose keys begin with a prefix, which must not be empty."""
    return scan_all(table, name, prefix, prefix[:-1] + bytes([prefix[-1] + 1]))


def clear_table(backend: Backend, name: str, fence: Fence | None = None) -> None:
    """Remove all entries of a table, page by page, each page in a transaction under the fence."""
    while page := backend.table.scan(name, limit=PAGE_ENTRIES):
        entries = dict.fromkeys(TableKey(name, key) for key, _ in page)
        backend.commit(Transaction(table=entries, fence=fence))
