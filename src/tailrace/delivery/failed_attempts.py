"""The failed attempts of a unit's messages, stored for people. Nothing is decided by them.

The table ``group-failed/GROUP`` has an entry ``UNIT@OFFSET`` for each message that failed and is
not acknowledged, at most `KEPT_MAX` for each unit. The owner of the unit writes them with its
progress, under its fence, and removes them with the acknowledgements. A message that succeeds
before the next commit is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tailrace.backend.contract import Table, TableKey
from tailrace.backend.table_scan import scan_all, scan_prefix
from tailrace.error_text import storable

KEPT_MAX: Final = 20
"""The number of messages kept for each unit, where thousands of keys may fail alike."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """The last failed attempt of a message.

    `attempts` is the number of attempts so far, by the `consumer` that owns the partition; the
    first of them failed at `since_ms`. `next_ms` is the time of the next one, None after the last.
    `behind` is the number of messages of the same key that the consumer has read and holds back.
    """

    key: str | None
    attempts: int
    error: str
    since_ms: int
    next_ms: int | None
    consumer: str
    behind: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FailedAttempt).decode


class FailedAttempts:
    """The failed attempts of one unit at one owner, and those that are stored.

    `stored` are the entries that the owner found.
    """

    def __init__(self, group: str, unit: str, stored: Mapping[int, FailedAttempt]) -> None:
        self._group = group
        self._unit = unit
        self._stored = dict(stored)
        self._written = dict(stored)
        self._current = dict(stored)

    def record(
        self,
        offset: int,
        key: bytes | None,
        attempts: int,
        error: str,
        consumer: str,
        time_ms: int,
        next_ms: int | None,
    ) -> None:
        """Record an attempt that failed now. The time of the first one is kept."""
        before = self._current.get(offset)
        if before is None and len(self._current) >= KEPT_MAX:
            return
        first = before is None or before.consumer != consumer
        self._current[offset] = FailedAttempt(
            key=None if key is None else key.decode("utf-8", "backslashreplace"),
            attempts=attempts,
            error=storable(error),
            since_ms=time_ms if before is None or first else before.since_ms,
            next_ms=next_ms,
            consumer=consumer,
        )

    def writes(
        self, acked: Callable[[int], bool], behind: Callable[[int], int]
    ) -> dict[TableKey, bytes | None]:
        """Return the entries to commit, without those that are acknowledged."""
        self._current = {
            offset: msgspec.structs.replace(failed, behind=behind(offset))
            for offset, failed in self._current.items()
            if not acked(offset)
        }
        self._written = dict(self._current)
        entries: dict[TableKey, bytes | None] = {}
        for offset in self._stored.keys() | self._current.keys():
            now = self._current.get(offset)
            if now != self._stored.get(offset):
                entries[self._key(offset)] = None if now is None else _encode(now)
        return entries

    def saved(self) -> None:
        """Record that the entries of the last call of `writes` are committed."""
        self._stored = self._written

    def _key(self, offset: int) -> TableKey:
        return failed_key(self._group, self._unit, offset)


def failed_table(group: str) -> str:
    """Return the name of a group's table."""
    return f"group-failed/{group}"


def failed_key(group: str, unit: str, offset: int) -> TableKey:
    """Return the key of a message's entry."""
    return TableKey(failed_table(group), f"{unit}@{offset}".encode())


def failed_keys(table: Table, group: str, topic: str) -> list[TableKey]:
    """Return the keys of all entries of a topic, also of an earlier topic of the same name."""
    name = failed_table(group)
    return [TableKey(name, key) for key, _ in scan_prefix(table, name, f"{topic}/".encode())]


def read_failed(table: Table, group: str, unit: str = "") -> dict[str, dict[int, FailedAttempt]]:
    """Return the entries of a unit, or of all units, by unit and offset."""
    found: dict[str, dict[int, FailedAttempt]] = {}
    stored = failed_table(group)
    entries = scan_prefix(table, stored, f"{unit}@".encode()) if unit else scan_all(table, stored)
    for key, value in entries:
        name, _, offset = key.decode().rpartition("@")
        found.setdefault(name, {})[int(offset)] = _decode(value)
    return found
