"""The newest value per key."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Backend, TableKey, Transaction
from tests.support.records import commit


def write(backend: Backend, **tables: dict[bytes, bytes | None]) -> None:
    rows = {
        TableKey(table, key): value for table, keys in tables.items() for key, value in keys.items()
    }
    commit(backend, Transaction(table=rows))


def test_a_key_that_was_never_written_is_none(backend: Backend) -> None:
    assert backend.table.get("t", b"k") is None
    assert backend.table.scan("t") == []


def test_the_newest_value_is_stored(backend: Backend) -> None:
    for value in (b"1", b"2", b""):
        write(backend, t={b"k": value})
        assert backend.table.get("t", b"k") == value


def test_a_removed_key_is_none(backend: Backend) -> None:
    write(backend, t={b"a": b"1", b"b": b"2"})
    write(backend, t={b"a": None, b"never": None})
    assert backend.table.get("t", b"a") is None
    assert backend.table.scan("t") == [(b"b", b"2")]


def test_tables_do_not_mix(backend: Backend) -> None:
    write(backend, t={b"k": b"1"}, u={b"k": b"2"})
    write(backend, t={b"k": None})
    assert (backend.table.get("t", b"k"), backend.table.get("u", b"k")) == (None, b"2")


def test_a_scan_is_in_byte_order(backend: Backend) -> None:
    keys = [b"", b"\x00", b"\x00\x00", b"A", b"a", b"aa", b"b", b"\x7f", b"\x80", b"\xff\xff"]
    write(backend, t={key: b"v" + key for key in reversed(keys)})
    assert backend.table.scan("t") == [(key, b"v" + key) for key in sorted(keys)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (b"", None, [b"a", b"b", b"c"]),
        (b"b", None, [b"b", b"c"]),
        (b"aa", b"c", [b"b"]),
        (b"b", b"b", []),
        (b"c", b"a", []),
        (b"d", None, []),
    ],
)
def test_a_scan_begins_at_its_start_and_stops_before_its_end(
    backend: Backend, start: bytes, end: bytes | None, expected: list[bytes]
) -> None:
    write(backend, t={b"a": b"1", b"b": b"2", b"c": b"3"})
    assert [key for key, _ in backend.table.scan("t", start, end)] == expected


def test_a_scan_returns_at_most_its_limit_and_continues_after_the_last_key(
    backend: Backend,
) -> None:
    write(backend, t={b"%04d" % i: b"" for i in range(1500)})
    assert len(backend.table.scan("t")) == 1000
    seen: list[bytes] = []
    while page := backend.table.scan("t", seen[-1] + b"\x00" if seen else b"", limit=400):
        assert len(page) <= 400
        seen += [key for key, _ in page]
    assert seen == [b"%04d" % i for i in range(1500)]


def test_a_large_value_is_stored(backend: Backend) -> None:
    large = bytes(range(256)) * 4096
    write(backend, t={b"k": large})
    assert backend.table.get("t", b"k") == large
