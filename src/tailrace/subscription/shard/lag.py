"""The lag of a shard's keys: the unresolved messages of each key in each queue, as ids.

It is derived from the unacknowledged messages of RQ and DLQ when an owner starts, and then follows
its decisions. Nothing is stored for it, so nothing can disagree with the queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.key_lanes import KeyLanes, LaneName
from tailrace.message import Partition
from tailrace.subscription.shard.commit.commit import Move
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import MessageRoute, OnDeadLetter, Queue, route_of
from tailrace.subscription.shard.requests.request import LetterPlace
from tailrace.subscription.shard.slices import BatchSlice, Slices, sliced
from tailrace.subscription.shard.streams import QueueIds, ShardStreams
from tailrace.subscription.shard.turn import Turn


class LaggingKeys(NamedTuple):
    """Unacknowledged messages of one partition of RQ or DLQ, by key, with offsets in order.

    Messages without a key have None instead of it.
    """

    partition: Partition
    offsets: Iterable[tuple[bytes | None, Sequence[int]]]


class KeyLag:
    """The lanes of the three queues of a shard. For one thread at a time."""

    def __init__(self, policy: OnDeadLetter, streams: ShardStreams) -> None:
        self.lanes = {queue: KeyLanes() for queue in (Queue.RQ, Queue.MQ, Queue.DLQ)}
        """The lanes of each queue. Those of DLQ are parked: nothing in them is ready."""
        self.slices = Slices()
        self._apart: set[int] = set()
        """The messages that are called without others: the call of their slice failed."""
        self._policy = policy
        self._ids = {
            Queue.MQ: QueueIds(streams.mq),
            Queue.RQ: QueueIds(streams.rq),
            Queue.DLQ: QueueIds(streams.dlq),
        }
        self._letters = streams.dlq[0].topic if streams.dlq else ""

    def open(self, streams: ShardStreams) -> None:
        """Know more partitions."""
        self._ids[Queue.MQ].add(streams.mq)
        self._ids[Queue.RQ].add(streams.rq)
        self._ids[Queue.DLQ].add(streams.dlq)

    def add_lagging(self, queue: Queue, partitions: Iterable[LaggingKeys]) -> None:
        """Add the unacknowledged messages of RQ or DLQ that an owner found, the oldest storage
        topic first."""
        lanes = self.lanes[queue]
        for partition, keys in partitions:
            base = self._ids[queue].base(partition)
            for key, offsets in keys:
                ids = (base + offset for offset in offsets)
                if key:
                    lanes.extend(key, ids)
                else:
                    for id in ids:
                        lanes.append(id, id)
        self._park()

    def add_messages(self, batch: FetchedBatch, rows: Iterable[int]) -> None:
        """Add messages that were read from MQ."""
        base, lanes = self._ids[Queue.MQ].base(batch.partition), self.lanes[Queue.MQ]
        keys, offsets = batch.keys, batch.offsets
        for row in rows:
            id = base + offsets[row]
            lanes.append(keys[row] or id, id)

    def pop_turn(self, queue: Queue, now: float) -> Turn | None:
        """Return the next message of a queue whose turn has come; None if there is none."""
        lanes = self.lanes[queue]
        if not lanes.ready(now):
            return None
        name = lanes.pop_ready()
        turn = Turn(queue, name, lanes.head(name))
        if isinstance(name, int) and name < 0:
            turn.slice = self.slices[turn.id]
            turn.record = RecordRow(turn.slice.batch, turn.slice.rows[0])
            self.slices.in_flight += 1
        elif self._apart and queue is Queue.MQ and turn.id in self._apart:
            self._apart.remove(turn.id)
            turn.single = True
        return turn

    # Slices.

    def add_slices(self, batch: FetchedBatch, rows: Sequence[int], most: int) -> None:
        """Add messages that were read from MQ, in slices of at most so many."""
        base, lanes = self._ids[Queue.MQ].base(batch.partition), self.lanes[Queue.MQ]
        for each in sliced(batch, rows, most):
            id = base + each.first
            self.slices.add(id, each)
            lanes.append(-1 - base, id)

    def holds_back(self, turn: Turn) -> bool:
        """True if a key of a slice lags in RQ or DLQ, or has an earlier message in its lane."""
        assert turn.slice is not None
        slices = {Queue.MQ: len(self.slices)}  # the names of their lanes are no keys
        found = [
            lanes
            for queue, lanes in self.lanes.items()
            if self._tracks(queue) and len(lanes) > slices.get(queue, 0)
        ]
        return bool(found) and turn.slice.has_key_in(*found)

    def take_apart(self, turn: Turn, *, failed: bool) -> FetchedBatch:
        """Add the messages of a slice to the lanes of their keys, and return their batch. After a
        call that `failed` each is called without others."""
        batch, rows = self.end_slice(turn)
        if failed:
            base = self._ids[Queue.MQ].base(batch.partition)
            self._apart.update(base + batch.offsets[row] for row in rows)
        self.add_messages(batch, rows)
        return batch

    def end_slice(self, turn: Turn) -> BatchSlice:
        """Remove a slice that was called, or is taken apart. The next one of its partition is
        ready."""
        self.lanes[Queue.MQ].remove_head(turn.lane)
        self.slices.in_flight -= 1
        return self.slices.remove(turn.id)

    def route(self, turn: Turn) -> MessageRoute:
        """Return where a message goes whose turn has come."""
        if isinstance(turn.lane, int):
            return MessageRoute.DELIVER  # without a key it follows no other
        return route_of(
            turn.queue,
            lags_in_rq=turn.lane in self.lanes[Queue.RQ],
            lags_in_dlq=turn.lane in self.lanes[Queue.DLQ],
            policy=self._policy,
        )

    def place(self, turn: Turn) -> tuple[Partition, int]:
        """Return the partition and the offset of a message."""
        return self._ids[turn.queue].place(turn.id)

    def offsets(self, turn: Turn, followers: int) -> Iterator[tuple[Partition, Sequence[int]]]:
        """Yield the offsets of a message and of some that follow it in its lane; or those of the
        messages of a slice."""
        if turn.slice is not None:
            yield turn.slice.batch.partition, turn.slice.offsets
            return
        for id in (turn.id, *self.lanes[turn.queue].followers(turn.lane, followers)):
            partition, offset = self._ids[turn.queue].place(id)
            yield partition, (offset,)

    def moves(self, turn: Turn, target: Queue) -> None:
        """Record the decision to move a message: its key lags in the other queue from now on.

        If the other queue holds nothing back, the key waits where it is until the move is stored:
        otherwise a later message could succeed, and this one be called again after a crash.
        """
        if not self._tracks(target):
            return
        self.lanes[turn.queue].remove_head(turn.lane)
        if isinstance(turn.lane, bytes):
            self.lanes[target].expect(turn.lane)

    def arrived(self, move: Move, partition: Partition, offset: int, at: float | None) -> None:
        """Record where a moved message was appended, and when its next attempt is due."""
        if not self._tracks(move.target):
            self.lanes[move.source].remove_head(move.lane)
            return
        lanes, id = self.lanes[move.target], self._ids[move.target].base(partition) + offset
        name: LaneName = id if move.key is None else move.key
        if move.key is None:
            lanes.expect(name)
        if move.target is Queue.DLQ:
            lanes.arrive(name, id)
            self._park()
        else:
            lanes.arrive(name, id, at)

    # Dead letters.

    def letter_id(self, place: LetterPlace) -> int:
        """Return the id of a dead letter; `KeyError` if the shard has no such partition."""
        storage, number, offset = place
        return self._ids[Queue.DLQ].base(Partition(self._letters, storage, number)) + offset

    def letter_place(self, id: int) -> tuple[Partition, int]:
        """Return the partition and the offset of a dead letter."""
        return self._ids[Queue.DLQ].place(id)

    def knows_letter(self, lane: LaneName, id: int) -> bool:
        """True if a dead letter is in its lane, or was; always if lanes are not tracked."""
        return not self._tracks(Queue.DLQ) or self.lanes[Queue.DLQ].reaches(lane, id)

    def is_first_letter(self, lane: LaneName, id: int) -> bool:
        """True if a dead letter is the first of its lane; always if lanes are not tracked."""
        return not self._tracks(Queue.DLQ) or self.lanes[Queue.DLQ].head(lane) == id

    def remove_letter(self, lane: LaneName, id: int) -> None:
        """Remove a dead letter that was delivered or discarded. Its key may lag no more."""
        if self._tracks(Queue.DLQ):
            self.lanes[Queue.DLQ].remove(lane, id)
            self._park()

    def _park(self) -> None:
        """Let the first dead letter of each key wait until somebody asks for it."""
        lanes = self.lanes[Queue.DLQ]
        while lanes.ready(-inf):
            lanes.fail(lanes.pop_ready())

    @property
    def due(self) -> float | None:
        """The time of the next attempt of a message that waits, or None."""
        times = [lanes.due for lanes in self.lanes.values() if lanes.due is not None]
        return min(times, default=None)

    def _tracks(self, queue: Queue) -> bool:
        """True if messages of a queue can hold back others."""
        return queue is not Queue.DLQ or self._policy is OnDeadLetter.BLOCK
