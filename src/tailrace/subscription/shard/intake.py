"""The partitions of MQ that a shard reads: in the order of lineage, and what may be called.

A partition opens when all partitions that it follows are finished: sealed, and acknowledged up to
their end by the stored ledger. The partitions of a replay have an end from the beginning.

Before a message is called, its offset is stored: see `tailrace.subscription.shard.permits`.

A message that does not match the filter of the subscription is acknowledged when it is read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.filter.batch_filter import BatchFilter
from tailrace.message import Partition
from tailrace.subscription.shard.attempt_book import AttemptBook
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.ledgers import Ledgers, gaps
from tailrace.subscription.shard.permits import NO_PERMITS, Permits
from tailrace.subscription.shard.streams import ShardStreams
from tailrace.subscription.shard.turn import NO_ATTEMPTS


@dataclass(slots=True)
class MainStream:
    """The state of one partition of MQ at one owner."""

    partition: Partition
    read_from: int
    suspects: frozenset[int] = frozenset()
    """The offsets that may have been in flight at an unclean end."""
    permitted: frozenset[int] = frozenset()
    """The offsets that are stored, suspects included: their messages may be called."""
    leftover: bool = False
    """True while an entry of an earlier owner is stored."""
    caught_up: bool = False
    """True if the last read found no more records."""
    end: int | None = None
    """The final end offset, once it is known. Nothing is read from there on."""
    watched_from: int | None = None
    reset: int = 0
    """The number of the offset reset after which its messages are read; 0 if there was none."""


class Intake:
    """All partitions of MQ of a shard. For one thread at a time."""

    def __init__(
        self,
        streams: ShardStreams,
        ledgers: Ledgers,
        permits: Mapping[Partition, Permits],
        ended: Container[str],
    ) -> None:
        self._ledgers = ledgers
        self._streams: dict[Partition, MainStream] = {}
        self._follows = streams.follows
        self.permitted_followers = 0
        """The number of followers that had a permit when a commit was prepared last."""
        self.add(streams, permits, ended)

    def add(
        self,
        streams: ShardStreams,
        permits: Mapping[Partition, Permits],
        ended: Container[str],
    ) -> None:
        """Add the partitions that are new to the shard, with the permits that are stored. `ended`
        are those of their processes that have ended."""
        self._follows = streams.follows
        for partition in streams.mq:
            if partition not in self._streams:
                progress = self._ledgers.stored[partition]
                worker, offsets = permits.get(partition, NO_PERMITS)
                leftover = bool(offsets)
                if worker not in ended:
                    offsets = frozenset()
                suspects = frozenset(offset for offset in offsets if not progress.acked(offset))
                stream = MainStream(partition, progress.mark, suspects, offsets, leftover)
                stream.end = streams.ends.get(partition)
                stream.reset = streams.resets.get(partition, 0)
                self._streams[partition] = stream

    def __getitem__(self, partition: Partition) -> MainStream:
        return self._streams[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._streams

    def fetched(self, partition: Partition, batch: FetchedBatch | None) -> MainStream:
        """Record what was read from a partition; None if there are no more records."""
        stream = self._streams[partition]
        if batch is None:
            stream.caught_up = True
        else:
            assert batch.start == stream.read_from, "records of MQ are read in order"
            stream.read_from, batch.reset = batch.next_offset, stream.reset
        return stream

    def number(self, batch: FetchedBatch) -> None:
        """Give records that were read again, of any queue, the number of their last reset."""
        stream = self._streams.get(batch.partition)
        if stream is not None:
            batch.reset = stream.reset

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
        elif sealed and stream.end is None:
            stream.end = end

    def finished(self, partition: Partition) -> bool:
        """True if a partition has an end, and all before it is acknowledged."""
        stream = self._streams[partition]
        return stream.end is not None and self._ledgers.stored[partition].mark >= stream.end

    def has_unfinished(self, partitions: Iterable[Partition]) -> bool:
        """True if the shard has some of these partitions, and has not finished all of them."""
        return any(each in self._streams and not self.finished(each) for each in partitions)

    @property
    def ended(self) -> bool:
        """True if all partitions are finished: the next storage topic may be of the next
        generation."""
        return all(map(self.finished, self._streams))

    def open(self, partition: Partition) -> bool:
        """True if all partitions that it follows are finished."""
        return all(self.finished(parent) for parent in self._follows.get(partition, ()))

    def revoke(self, taken: Mapping[Partition, set[int]], most: int) -> set[Partition]:
        """Forget permits of *followers*, so that `most` are left: of messages that are neither
        acknowledged nor suspect nor `taken`, because their turn has come. Those that are furthest
        behind are forgotten. Returns the partitions whose permits have to be stored again."""
        followers = [
            (offset, partition)
            for partition, stream in self._streams.items()
            for offset in self._ledgers.unresolved(
                partition, stream.permitted - stream.suspects - taken.get(partition, frozenset())
            )
        ]
        followers.sort()
        revoked: dict[Partition, set[int]] = {}
        for offset, partition in followers[most:]:
            revoked.setdefault(partition, set()).add(offset)
        for partition, offsets in revoked.items():
            self._streams[partition].permitted -= offsets
        self.permitted_followers = len(followers[:most])
        return set(revoked)

    def permits(self, new: Mapping[Partition, Iterable[int]]) -> dict[Partition, set[int]]:
        """Return the permits to store with new ones. Those that are acknowledged, if only by the
        commit that starts, are left out."""
        return {
            partition: self._ledgers.unresolved(
                partition, self._streams[partition].permitted.union(offsets)
            )
            for partition, offsets in new.items()
        }

    def final_permits(self, new: Iterable[Partition]) -> dict[Partition, set[int]]:
        """Return the permits to store at an orderly end: only what was suspect and was not called
        stays so. `new` are the partitions that the commit would have stored permits of."""
        return {
            partition: self._ledgers.unresolved(partition, stream.suspects)
            for partition, stream in self._streams.items()
            if stream.permitted or stream.leftover or partition in new
        }

    def permits_stored(self, permits: Mapping[Partition, Iterable[int]]) -> None:
        """Record the permits that a commit stored."""
        for partition, offsets in permits.items():
            stream = self._streams[partition]
            stream.permitted, stream.leftover = frozenset(offsets), False

    def next_read(self) -> MainStream | None:
        """Return an open partition that may have more records; None if there is none.

        Partitions take turns.
        """
        for partition, stream in self._streams.items():
            more = not stream.caught_up and stream.read_from != stream.end
            if more and self.open(partition):
                self._streams[partition] = self._streams.pop(partition)
                return stream
        return None

    def to_watch(self) -> list[MainStream]:
        """Return the partitions that wait for records and are not watched from there yet."""
        return [
            stream
            for stream in self._streams.values()
            if stream.caught_up and stream.read_from not in (stream.end, stream.watched_from)
        ]


class Filtering:
    """The messages that the filter leaves out. For one thread at a time.

    They are no part of the order: they wait for no earlier message of their key, and hold back
    none. Messages that are in RQ or DLQ stay there, whatever the filter is now.
    """

    def __init__(self, ledgers: Ledgers, book: AttemptBook, counts: ShardCounts) -> None:
        self._ledgers = ledgers
        self._book = book
        self._counts = counts
        self.filtered = 0
        """The number of messages that did not match, since the shard was taken over."""

    def add(self) -> None:
        """Count a message that did not match."""
        self.filtered += 1
        self._counts.filtered += 1

    def apply(
        self,
        filter: BatchFilter | None,
        batch: FetchedBatch,
        suspects: Container[int],
        ready: ShardCommit,
    ) -> tuple[FetchedBatch, list[tuple[int, int]]]:
        """Return the messages of MQ that match, and the ranges of offsets that are never called:
        without records, or left out now. The commit acknowledges all other offsets.

        An earlier owner may have stored attempts of suspects. The commit removes them if the
        message does not match by now.
        """
        kept = batch if filter is None else filter.matching(batch)
        for first, after in gaps(kept):
            ready.ack(batch.partition, first, after)
        passed = [*gaps(batch)]
        if kept is batch:
            return kept, passed
        offsets = set(kept.offsets)
        for row in self._ledgers.unacknowledged(batch):
            offset = batch.offsets[row]
            if offset in offsets:
                continue
            self.add()
            passed.append((offset, offset + 1))
            if (
                offset in suspects
                and (origin := Origin(batch.partition, offset, batch.reset)) in self._book
            ):
                ready.attempts[origin] = NO_ATTEMPTS
                self._book.remove(origin)
        return kept, passed
