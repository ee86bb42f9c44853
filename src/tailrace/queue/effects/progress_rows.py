"""The stored messages of a unit, in memory and as rows.

A stream is a partition and the number of a reset. Its messages are a `Progress`: a low-water mark
and ranges, in blocks of 65,536 offsets. Each entry of its ledger is a row.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.queue.effects.database import MARK, EffectRow
from tailrace.subscription.shard.attempts import Origin
from tailrace.topic.ledger import Progress

_LEDGER: Final = ("effects", Partition("effects", 0, 0))
"""The consumer and partition in the keys of every progress: a row has a column for its stream."""

_PREFIX: Final = b"effects/0.0/"
_MARK_KEY: Final = _PREFIX + b"mark"
_BLOCK_KEY: Final = _PREFIX + b"block/"


_PASSED_MAX: Final = 1_000
"""The number of ranges without effects that are kept for a stream before they are merged."""


class _StreamProgress(NamedTuple):
    """The messages of a stream: all stored ones, and those in rows of the unit. The second one also
    has the messages of the commit that is under way."""

    known: Progress
    own: Progress


class UnitProgress:
    """The stored messages of a unit.

    Any thread may call `stored` and `pass_over`. The other methods are for one thread at a time:
    `stage`, commit the rows, then `saved`, or `reload` with the stored rows if the commit failed.
    Rows are decoded when the first message of their stream is looked up.
    """

    def __init__(self, unit: str, rows: Iterable[EffectRow]) -> None:
        self._unit = unit
        self._memory = threading.Lock()
        self._streams: dict[str, _StreamProgress] = {}
        self._rows = _by_stream(rows)
        self._passed: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Offsets without effects that no commit has stored."""
        self._staged: dict[str, int] = {}
        """The number of them, by stream, that the commit under way stores."""

    def stored(self, origin: Origin) -> bool:
        """True if a message is stored by the unit or by one of an earlier generation."""
        with self._memory:
            return self._stream(_stream_of(origin)).known.acked(origin.offset)

    def pass_over(self, first: Origin, after: int) -> None:
        """Have the next commit of the stream store offsets that have no effects. Otherwise they are
        gaps for ever, and the rows grow with the number of messages beside them."""
        with self._memory:
            ranges, start = self._passed[_stream_of(first)], first.offset
            staged = self._staged.get(_stream_of(first), 0)
            if len(ranges) > staged and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, after))
            if len(ranges) - staged > _PASSED_MAX:
                ranges[staged:] = _merged(ranges[staged:])

    def stored_by_unit(self, origins: Sequence[Origin]) -> bool:
        """True if rows of the unit have all these messages."""
        with self._memory:
            return all(self._stream(_stream_of(each)).own.acked(each.offset) for each in origins)

    def stage(self, origins: Sequence[Origin]) -> list[EffectRow]:
        """Return the rows that store these messages; `InvalidValue` if one is stored already."""
        if not origins:
            raise InvalidValue("origins", origins, "at least one message")
        for origin in origins:
            if self.stored(origin):
                raise InvalidValue(
                    "origin", str(origin), "a message whose effects are not stored yet"
                )
        changed: dict[str, Progress] = {}
        with self._memory:
            for origin in origins:
                name = _stream_of(origin)
                changed[name] = progress = self._stream(name).own
                progress.ack(origin.offset, origin.offset + 1)
            for name, progress in changed.items():
                passed = self._passed.get(name, ())
                self._staged[name] = len(passed)
                for first, after in passed:
                    progress.ack(first, after)
        return [
            EffectRow(self._unit, name, _block_of(key.key), done)
            for name, progress in changed.items()
            for key, done in progress.writes().items()
        ]

    def saved(self, origins: Sequence[Origin]) -> None:
        """Record that the rows of the last `stage`, for these messages, are committed."""
        with self._memory:
            for origin in origins:
                known, own = self._stream(_stream_of(origin))
                known.ack(origin.offset, origin.offset + 1)
                own.saved()
            for name, count in self._staged.items():
                del self._passed[name][:count]
            self._staged.clear()

    def reload(self, rows: Iterable[EffectRow]) -> None:
        """Replace everything by the stored rows."""
        with self._memory:
            self._streams.clear()
            self._staged.clear()
            self._rows = _by_stream(rows)

    def _stream(self, name: str) -> _StreamProgress:
        found = self._streams.get(name)
        if found is None:
            by_unit = self._rows.pop(name, {})
            own = _progress(by_unit.pop(self._unit, []))
            known = own.copy()
            for rows in by_unit.values():
                known.merge(_progress(rows))
            found = self._streams[name] = _StreamProgress(known, own)
        return found


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, those that meet as one."""
    found: list[tuple[int, int]] = []
    for first, after in sorted(ranges):
        if found and found[-1][1] >= first:
            first, after = found[-1][0], max(after, found.pop()[1])
        found.append((first, after))
    return found


def _by_stream(rows: Iterable[EffectRow]) -> dict[str, dict[str, list[EffectRow]]]:
    """Return the rows by stream and unit."""
    found: defaultdict[str, defaultdict[str, list[EffectRow]]]
    found = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row.stream][row.unit].append(row)
    return {stream: dict(by_unit) for stream, by_unit in found.items()}


def _stream_of(origin: Origin) -> str:
    return f"{origin.partition}+r{origin.reset}" if origin.reset else str(origin.partition)


def _progress(rows: Iterable[EffectRow]) -> Progress:
    entries = [(_key_of(row.block), row.done) for row in rows if row.done is not None]
    return Progress.load(_Ledger(sorted(entries)), *_LEDGER)


def _block_of(key: bytes) -> int:
    return MARK if key == _MARK_KEY else int.from_bytes(key.removeprefix(_BLOCK_KEY))


def _key_of(block: int) -> bytes:
    return _MARK_KEY if block == MARK else _BLOCK_KEY + block.to_bytes(8)


class _Ledger:
    """The rows of one stream and unit, as the table that a progress is loaded from."""

    def __init__(self, entries: list[tuple[bytes, bytes]]) -> None:
        self._entries = entries

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return dict(self._entries).get(key)

    def scan(
        self, table: str, start: bytes = b"", end: bytes | None = None, limit: int = 1000
    ) -> list[tuple[bytes, bytes]]:
        """Return entries from `start` up to, not including, `end`."""
        first = bisect_left(self._entries, (start,))
        after = len(self._entries) if end is None else bisect_left(self._entries, (end,))
        return self._entries[first : min(after, first + limit)]
