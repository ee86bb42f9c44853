"""Messages that producers pushed and consumers saw, in files that outlive them, and the verdict.

A message is *seen* when its line is in the file of the consumer. A consumer writes the line before
it acknowledges the message, so a killed consumer has acknowledged no message that is missing in its
file. Times are read from the host's monotonic clock at the delivery, so times of different
processes can be compared.
"""

from __future__ import annotations

import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Self

from tailrace.message import Partition, Position
from tailrace.testing import Audit, Auditor
from tailrace.testing.auditor import Numbered

TOPIC = "orders"

_LINE = struct.Struct("<QIIHHI?")
_WAKING_NS = 2_000_000_000
"""How long a resumed process may still see messages of partitions that it has lost meanwhile."""


class Line(NamedTuple):
    """A message that was pushed or seen, and when. `marked` has a meaning only for seen ones."""

    time_ns: int
    key: int
    number: int
    storage: int
    partition: int
    offset: int
    marked: bool

    @property
    def stream(self) -> Partition:
        """The partition of the message."""
        return Partition(TOPIC, self.storage, self.partition)


class DeliveryLog:
    """A file to which one process appends lines. They survive the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, lines: Sequence[Line]) -> None:
        """Append all lines by one write."""
        data = b"".join(_LINE.pack(*line) for line in lines)
        assert os.write(self._file, data) == len(data)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield all lines of a file; none if the file does not exist."""
    data = path.read_bytes() if path.exists() else b""
    return map(Line._make, _LINE.iter_unpack(data[: len(data) // _LINE.size * _LINE.size]))


class Fault(Enum):
    """The kind of an incident."""

    KILLED = "killed"
    PAUSED = "paused"
    CUT_SHORT = "could not commit as it left"


@dataclass(slots=True)
class Incident:
    """A fault that hit a consumer, from when to when. A killed consumer never comes back."""

    consumer: int
    fault: Fault
    start_ns: int
    end_ns: int = 1 << 63


class _Sighting(NamedTuple):
    consumer: int
    time_ns: int


@dataclass(slots=True)
class Repeats:
    """Messages that were seen more than once, by cause.

    `unmarked` were not marked `redelivered`. `uncaused` were repeated without an incident of a
    consumer that saw them. `by_incident` counts the rest by incident number and partition.
    `oldest_s` is the longest time between a delivery and the incident after which it was repeated.
    """

    seen: int = 0
    unmarked: set[Numbered] = field(default_factory=set)
    uncaused: set[Numbered] = field(default_factory=set)
    by_incident: Counter[tuple[int, Partition]] = field(default_factory=Counter)
    oldest_s: float = 0.0

    @property
    def most(self) -> int:
        """The most messages of one partition that were repeated after one incident."""
        return max(self.by_incident.values(), default=0)


class Verdict(NamedTuple):
    """The audit of all messages together, and the repeats by consumer."""

    audit: Audit
    repeats: Repeats

    @property
    def wrong(self) -> dict[str, int]:
        """The number of violations of each kind that occurred."""
        audit, repeats = self.audit, self.repeats
        found = {
            "lost": audit.lost,
            "displaced": audit.displaced,
            "disordered": audit.disordered,
            "unmarked": repeats.unmarked,
            "uncaused": repeats.uncaused,
        }
        return {what: len(messages) for what, messages in found.items() if messages}

    @classmethod
    def of(
        cls, receipts: Iterable[Line], files: Sequence[Path], incidents: Sequence[Incident] = ()
    ) -> Self:
        """Compare the files of the consumers, in the order of their numbers, with the receipts."""
        auditor = Auditor()
        for line in receipts:
            auditor.pushed(line.key, line.number, _position(line))
        found = [(line, number) for number, path in enumerate(files) for line in read_lines(path)]
        found.sort()
        for line, _ in found:
            auditor.saw(line.key, line.number, _position(line))
        return cls(auditor.audit(), _repeats(found, incidents))


def _repeats(found: Sequence[tuple[Line, int]], incidents: Sequence[Incident]) -> Repeats:
    repeats = Repeats(seen=len(found))
    last: dict[Numbered, _Sighting] = {}
    unmarked: set[Numbered] = set()
    causes = _Causes(incidents)
    for line, consumer in found:
        message, now = Numbered(line.key, line.number), _Sighting(consumer, line.time_ns)
        if not line.marked:
            (repeats.unmarked if message in unmarked else unmarked).add(message)
        before = last.get(message)
        last[message] = now
        if before is None:
            continue
        cause = causes.between(before, now)
        if cause is None:
            repeats.uncaused.add(message)
            continue
        repeats.by_incident[cause, line.stream] += 1
        if incidents[cause].consumer == before.consumer:
            waited_ns = incidents[cause].start_ns - before.time_ns
            repeats.oldest_s = max(repeats.oldest_s, waited_ns / 1e9)
    return repeats


class _Causes:
    """Finds the incident of one of two consumers that saw the same message."""

    def __init__(self, incidents: Sequence[Incident]) -> None:
        self._of: defaultdict[int, list[tuple[int, Incident]]] = defaultdict(list)
        for number, incident in enumerate(incidents):
            self._of[incident.consumer].append((number, incident))

    def between(self, before: _Sighting, now: _Sighting) -> int | None:
        """Return the number of the incident: the first after the message was seen, or one from
        which a process had just resumed."""
        for number, incident in self._of[before.consumer]:
            if before.time_ns <= incident.start_ns <= now.time_ns:
                return number
        for consumer in (before.consumer, now.consumer):
            for number, incident in reversed(self._of[consumer]):
                woken_ns = incident.end_ns + _WAKING_NS
                if incident.start_ns <= now.time_ns and before.time_ns <= woken_ns:
                    return number
        return None


def _position(line: Line) -> str:
    return str(Position(*line.stream, line.offset))
