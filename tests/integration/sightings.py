"""What producers were told and what consumers saw, in files that outlive them, and the verdict.

A message is *seen* when its line is in the file of the consumer, which writes it before it
acknowledges the message. So of what a consumer had when it was killed, whatever it did not write it
did not acknowledge either. Times are of the host's monotonic clock, taken when a message was handed
out, so those of different processes can be compared.
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
"""How long after it was continued a process may still see what it has lost meanwhile."""


class Line(NamedTuple):
    """A message that was pushed (`marked` says nothing then) or seen, and when."""

    time_ns: int
    key: int
    number: int
    storage: int
    partition: int
    offset: int
    marked: bool

    @property
    def stream(self) -> Partition:
        """The stream that it is in."""
        return Partition(TOPIC, self.storage, self.partition)


class Lines:
    """A file to which one process writes; what was written is there, whatever becomes of it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, lines: Sequence[Line]) -> None:
        """All of them by one write."""
        data = b"".join(_LINE.pack(*line) for line in lines)
        assert os.write(self._file, data) == len(data)


def read_lines(path: Path) -> Iterator[Line]:
    """All that was written to a file; nothing when its process did not come to write any."""
    data = path.read_bytes() if path.exists() else b""
    return map(Line._make, _LINE.iter_unpack(data[: len(data) // _LINE.size * _LINE.size]))


class Blow(Enum):
    """What befell a consumer."""

    KILLED = "killed"
    PAUSED = "paused"
    CUT_SHORT = "could not commit as it left"


@dataclass(slots=True)
class Incident:
    """A blow to a consumer, and when it was dealt; a killed one never comes back."""

    consumer: int
    blow: Blow
    start_ns: int
    end_ns: int = 1 << 63


class _Sighting(NamedTuple):
    consumer: int
    time_ns: int


@dataclass(slots=True)
class Repeats:
    """Messages that came again, by what caused it.

    `unmarked` came more than once without being marked `redelivered`. `uncaused` came again though
    nothing had befallen who saw them. `by_incident` counts the rest by number of the incident and
    stream; `oldest_s` is how long before a blow the oldest of them had been handed out.
    """

    seen: int = 0
    unmarked: set[Numbered] = field(default_factory=set)
    uncaused: set[Numbered] = field(default_factory=set)
    by_incident: Counter[tuple[int, Partition]] = field(default_factory=Counter)
    oldest_s: float = 0.0

    @property
    def most(self) -> int:
        """The most of one stream that came again after one blow."""
        return max(self.by_incident.values(), default=0)


class Verdict(NamedTuple):
    """The auditor's, who knows of no consumers, and what is to be said of repetitions."""

    audit: Audit
    repeats: Repeats

    @property
    def wrong(self) -> dict[str, int]:
        """What must not be at all, and how often it was."""
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
        """What the files of the consumers, numbered as they stand, say beside the receipts."""
        auditor = Auditor()
        for line in receipts:
            auditor.told(line.key, line.number, _position(line))
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
    """Finds what befell one of two who saw the same message, between the two times."""

    def __init__(self, incidents: Sequence[Incident]) -> None:
        self._of: defaultdict[int, list[tuple[int, Incident]]] = defaultdict(list)
        for number, incident in enumerate(incidents):
            self._of[incident.consumer].append((number, incident))

    def between(self, before: _Sighting, now: _Sighting) -> int | None:
        """The number of the incident: the first after the message was seen, or one of which a
        process had just woken up."""
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
