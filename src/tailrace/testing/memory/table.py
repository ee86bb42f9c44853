"""The table of a backend in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from tailrace.backend.contract import TableKey
from tailrace.errors import Conflict
from tailrace.testing.memory.gate import Gate


class MemoryTable:
    """The tables: the values of each, and its keys in order."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._values: dict[str, dict[bytes, bytes]] = {}
        self._keys: dict[str, list[bytes]] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the newest committed value, or None."""
        with self._gate.entered():
            return self._values.get(table, {}).get(key)

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Return the keys from `start` up to, not including, `end`, with their values."""
        with self._gate.entered():
            keys, values = self._keys.get(table, []), self._values.get(table, {})
            first = bisect_left(keys, start)
            last = len(keys) if end is None else bisect_left(keys, end)
            return [(key, values[key]) for key in keys[first : min(last, first + limit)]]

    def check_absent(self, absent: tuple[TableKey, ...]) -> None:
        """Raise `Conflict`, with its value, for a key that exists. The caller holds the lock."""
        for table, key in absent:
            value = self._values.get(table, {}).get(key)
            if value is not None:
                raise Conflict(f"key {key!r} of table {table}", expected=0, version=1, value=value)

    def write(self, writes: Mapping[TableKey, bytes | None]) -> None:
        """Set and remove keys. The caller holds the lock."""
        for (table, key), value in writes.items():
            values, keys = self._values.setdefault(table, {}), self._keys.setdefault(table, [])
            if value is not None:
                if key not in values:
                    insort(keys, key)
                values[key] = value
            elif values.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
