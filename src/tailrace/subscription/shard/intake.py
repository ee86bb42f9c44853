"""The partitions of MQ that a shard reads: in the order of lineage, and how far it may deliver.

A partition opens when all partitions that it follows are finished: sealed, and acknowledged up to
their end by the stored ledger.

`handed_out` bounds what may have been in flight: before a message is called, a bound above its
offset is stored. An owner that finds a bound came after an unclean end. The unacknowledged messages
below it are suspect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.message import Partition
from tailrace.subscription.shard.ledgers import Ledgers
from tailrace.subscription.shard.streams import ShardStreams


class HandedOut(NamedTuple):
    """The bound that a new owner found, and the end of the partition at that time."""

    bound: int
    end: int


@dataclass(slots=True)
class MainStream:
    """The state of one partition of MQ at one owner."""

    partition: Partition
    read_from: int
    suspect_below: int = 0
    """Unacknowledged messages below this offset may have been in flight at an unclean end."""
    stored_bound: int = 0
    """The stored `handed_out`. Messages below it may be called."""
    caught_up: bool = False
    """True if the last read found no more records."""
    end: int | None = None
    """The final end offset, once it is known."""
    watched_from: int | None = None


class Intake:
    """All partitions of MQ of a shard. For one thread at a time."""

    def __init__(
        self, streams: ShardStreams, ledgers: Ledgers, handed_out: Mapping[Partition, HandedOut]
    ) -> None:
        self._ledgers = ledgers
        self._streams: dict[Partition, MainStream] = {}
        self._follows = streams.follows
        self.add(streams, handed_out)

    def add(self, streams: ShardStreams, handed_out: Mapping[Partition, HandedOut]) -> None:
        """Add the partitions that are new to the shard."""
        self._follows = streams.follows
        for partition in streams.mq:
            if partition not in self._streams:
                bound, end = handed_out.get(partition, HandedOut(0, 0))
                mark = self._ledgers.stored[partition].mark
                self._streams[partition] = MainStream(partition, mark, min(bound, end), bound)

    def __getitem__(self, partition: Partition) -> MainStream:
        return self._streams[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._streams

    @property
    def streams(self) -> list[MainStream]:
        """All partitions."""
        return list(self._streams.values())

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again, where the shard has them: they have more records, or an
        end."""
        for partition in partitions:
            stream = self._streams.get(partition)
            if stream is not None:
                stream.caught_up, stream.watched_from = False, None

    def unwatch(self) -> None:
        """Watch all partitions anew: a look at one of them failed."""
        for stream in self._streams.values():
            stream.watched_from = None

    def inspected(self, partition: Partition, end: int, sealed: bool) -> None:
        """Record the end of a partition that was read to its end, and if it is final."""
        stream = self._streams[partition]
        if stream.read_from < end:
            stream.caught_up = False
        elif sealed:
            stream.end = end

    def finished(self, partition: Partition) -> bool:
        """True if a partition has an end, and all before it is acknowledged."""
        stream = self._streams[partition]
        return stream.end is not None and self._ledgers.stored[partition].mark >= stream.end

    def open(self, partition: Partition) -> bool:
        """True if all partitions that it follows are finished."""
        return all(self.finished(parent) for parent in self._follows[partition])

    def next_read(self) -> MainStream | None:
        """Return an open partition that may have more records; None if there is none.

        Partitions take turns.
        """
        for partition, stream in self._streams.items():
            if not stream.caught_up and self.open(partition):
                self._streams[partition] = self._streams.pop(partition)
                return stream
        return None

    def to_watch(self) -> list[MainStream]:
        """Return the partitions that wait for records and are not watched from there yet."""
        return [
            stream
            for stream in self._streams.values()
            if stream.caught_up and stream.end is None and stream.watched_from != stream.read_from
        ]
