"""Messages that a group gave back too often, for people to see. Nothing is decided by it.

One is an entry ``group-failed/GROUP/UNIT@OFFSET`` of the store. It counts while the group's ledger
does not hold the offset: whoever acknowledges the message, or skips it, need not know of the entry.
A seek removes those of its topic.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from tailrace.amount import format_amount
from tailrace.backend.contract import Backend, Change
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.definition import GROUPS, consumer_name, find_group
from tailrace.group.history import HistoryLine, append_history
from tailrace.message import Partition
from tailrace.topic.ledger import Progress

FAILED: Final = "group-failed/"

KEPT_MAX: Final = 20
"""So many are kept of a unit: enough to look at, where thousands of keys fail alike."""

_log: Final = logging.getLogger("tailrace.group")


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that `consumer` gave back at its last attempt, and that nobody acknowledged since:
    nothing more of its key is handed out there."""

    position: str
    key: str | None
    attempts: int
    time: datetime
    consumer: str


class _Entry(msgspec.Struct, frozen=True):
    key: str | None
    attempts: int
    time_ms: int
    consumer: str


_decode = msgspec.json.Decoder(_Entry).decode


def note_failed(
    backend: Backend, group: str, consumer: str, failed: DeliveryFailed, time_ms: int
) -> None:
    """Keep what failed, for people; and no longer what is acknowledged of its unit by now.

    The consumer is told whether that works or not.
    """
    try:
        _write(backend, group, consumer, failed, time_ms)
    except Error as error:
        _log.warning("group %s: that %s failed is not shown: %s", group, failed.position, error)


def failed_messages(backend: Backend, group: str) -> dict[str, tuple[FailedMessage, ...]]:
    """The messages that count, by unit, the lowest first."""
    found: dict[str, tuple[FailedMessage, ...]] = {}
    by_unit: defaultdict[str, dict[int, _Entry]] = defaultdict(dict)
    prefix = failed_prefix(group)
    for key, value, _ in backend.store.scan(prefix):
        unit, _, offset = key.removeprefix(prefix).rpartition("@")
        by_unit[unit][int(offset)] = _decode(value or b"")
    for unit, entries in by_unit.items():
        progress = _progress(backend, group, unit)
        if left := sorted(offset for offset in entries if not progress.acked(offset)):
            found[unit] = tuple(_message(f"{unit}@{offset}", entries[offset]) for offset in left)
    return found


def failed_keys(backend: Backend, group: str, topic: str) -> list[str]:
    """The entries of a group in a topic, whether they count or not."""
    return [entry.key for entry in backend.store.scan(f"{failed_prefix(group)}{topic}/")]


def failed_prefix(group: str) -> str:
    """What the store entries of a group's failed messages begin with."""
    return f"{FAILED}{group}/"


def _write(
    backend: Backend, group: str, consumer: str, failed: DeliveryFailed, time_ms: int
) -> None:
    stored = find_group(backend, group)
    if stored is None:
        return
    unit = failed.position.rpartition("@")[0]
    entries = dict(_entries(backend, group, unit))
    progress = _progress(backend, group, unit)
    done = [offset for offset in entries if progress.acked(offset)]
    writes: dict[str, bytes | None] = {entries[offset]: None for offset in done}
    if len(entries) - len(done) < KEPT_MAX:
        entry = _Entry(failed.key, failed.attempts, time_ms, consumer)
        writes[failed_prefix(group) + failed.position] = msgspec.json.encode(entry)
    if writes:
        backend.store.commit(Change({GROUPS + group: stored.version}, writes))
    why = f"{failed.position} was given back {format_amount(failed.attempts, 'time')}"
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    append_history(backend, [HistoryLine(time, group, "failed", unit, consumer, why=why)])


def _entries(backend: Backend, group: str, unit: str) -> Iterator[tuple[int, str]]:
    """The offsets of a unit's entries, and their keys."""
    for entry in backend.store.scan(f"{failed_prefix(group)}{unit}@"):
        yield int(entry.key.rpartition("@")[2]), entry.key


def _progress(backend: Backend, group: str, unit: str) -> Progress:
    return Progress.load(backend.table, consumer_name(group), Partition.parse(unit))


def _message(position: str, entry: _Entry) -> FailedMessage:
    time = datetime.fromtimestamp(entry.time_ms / 1000, UTC)
    return FailedMessage(position, entry.key, entry.attempts, time, entry.consumer)
