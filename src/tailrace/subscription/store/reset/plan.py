"""The plan of an offset reset: the new marks, what is handled again, and what is passed over.

The topic is reset back or forward. RQ and DLQ move forward only: their messages are there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Log
from tailrace.errors import InvalidValue, OutOfRange
from tailrace.group.store.start import Start, StartLike, format_start, parse_start, place_seek
from tailrace.message import Partition
from tailrace.subscription.layout.agreement import NamedShape, find_disagreement, valid_shards
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.names import dead_letter_queue, replay_of, retry_queue
from tailrace.topic.composite import Definition
from tailrace.topic.ledger import Progress
from tailrace.topic.offset_search import offset_at
from tailrace.topic.offset_spec import Extreme
from tailrace.topic.open_streams import held_streams
from tailrace.topic.record_count import amount_within

_TARGET: Final = "reset target"
_ENDS: Final = {"start": Extreme.EARLIEST, "end": Extreme.LATEST}


class QueueTopic(NamedTuple):
    """A queue of a subscription: its topic, and the version of that topic's definition."""

    queue: Queue
    topic: str
    definition: Definition
    version: int


class PartitionReset(NamedTuple):
    """A partition that a reset moves, from one low-water mark to another.

    `again` messages were acknowledged and will be read again, and `passed` ones were not and will
    never be read.
    """

    partition: Partition
    before: int
    mark: int
    again: int
    passed: int


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """A reset that has not been executed, or the one that was.

    `queue` is ``"mq"`` for the topic, ``"rq"`` or ``"dlq"``, and `target` the text of the target.
    `partitions` are those that it moves. `number` is the number of the reset that messages of the
    topic carry afterwards.
    """

    subscription: str
    queue: str
    target: str
    number: int
    partitions: tuple[PartitionReset, ...]

    @property
    def changes(self) -> bool:
        """True if it changes what is delivered, by what is acknowledged now."""
        return bool(self.again or self.passed)

    @property
    def again(self) -> int:
        """The number of acknowledged messages that are read again."""
        return sum(each.again for each in self.partitions)

    @property
    def passed(self) -> int:
        """The number of messages that are passed over."""
        return sum(each.passed for each in self.partitions)


def queue_topic(stored: StoredSubscription, queue: Queue) -> QueueTopic:
    """Return a queue of a subscription."""
    found = {
        Queue.MQ: (stored.definition.topic, *stored.main),
        Queue.RQ: (retry_queue(stored.name), *stored.rq),
        Queue.DLQ: (dead_letter_queue(stored.name), *stored.dlq),
    }
    return QueueTopic(queue, *found[queue])


def parse_queue(text: str) -> Queue:
    """Parse ``mq``, ``rq`` or ``dlq``; `InvalidValue` for other text."""
    if not isinstance(text, str) or text.upper() not in Queue.__members__:
        raise InvalidValue("queue", text, "mq, the topic; rq, the retry queue; dlq")
    return Queue[text.upper()]


def parse_target(to: StartLike) -> Start:
    """Parse the target of a reset: ``start``, ``end``, or what `parse_start` accepts."""
    return _ENDS[to] if isinstance(to, str) and to in _ENDS else parse_start(to, _TARGET)


def plan_of(backend: Backend, stored: StoredSubscription, queue: Queue, to: Start) -> ResetPlan:
    """Return the plan of a reset. Changes nothing.

    `InvalidValue` for a position in another topic, for a move back in RQ or DLQ, and if some key
    would have another shard in a part of the topic that is read again. `OutOfRange` for a position
    that does not exist, `StorageDeleted` for one that was deleted.
    """
    if replay_of(stored.name) is not None:
        raise InvalidValue("subscription", stored.name, "one that is no replay of a queue")
    chosen = queue_topic(stored, queue)
    if isinstance(to, tuple):
        for position in to:
            if position.topic != chosen.topic:
                raise InvalidValue(_TARGET, str(position), f"a position in {chosen.topic}")
    if queue is Queue.MQ:
        marks = _marks_of_topic(backend.log, chosen, to)
    else:
        marks = _marks_of_queue(backend, stored, chosen, to)
    ledgers = read_ledgers(backend, stored, marks)
    moves = tuple(_moves(backend.log, ledgers, marks))
    number = stored.definition.reset
    if queue is Queue.MQ:
        number += 1
        _check_shards(stored, moves)
    text = next((each for each, spec in _ENDS.items() if spec is to), None)
    return ResetPlan(stored.name, queue.name.lower(), text or format_start(to), number, moves)


def _marks_of_topic(log: Log, chosen: QueueTopic, to: Start) -> dict[Partition, int]:
    """Return the new marks in the topic: positions also move the partitions that follow them."""
    placed = place_seek(log, chosen.topic, chosen.definition, to)
    marks = dict(placed.marks)
    if placed.whole:
        held = held_streams(log, chosen.topic, chosen.definition)
        marks = {stream: marks.get(stream, 0) for stream in held}
    return {Partition(chosen.topic, *stream): marks[stream] for stream in sorted(marks)}


def _marks_of_queue(
    backend: Backend, stored: StoredSubscription, chosen: QueueTopic, to: Start
) -> dict[Partition, int]:
    """Return the new marks in RQ or DLQ, of the partitions that move forward."""
    name = chosen.queue.name
    forward = f"'end', a time, or a position in {chosen.topic} that is not passed yet"
    why = f"messages of {name} are moved forward only: what was passed is not read again"
    if to is Extreme.EARLIEST:
        raise InvalidValue(_TARGET, "start", forward, why)
    held = held_streams(backend.log, chosen.topic, chosen.definition)
    partitions = {Partition(chosen.topic, *stream): bounds for stream, bounds in held.items()}
    ledgers = read_ledgers(backend, stored, partitions)
    if not isinstance(to, tuple):
        found = {
            where: offset_at(backend.log, where, bounds, to) for where, bounds in partitions.items()
        }
        return {where: at for where, at in sorted(found.items()) if at > ledgers[where].mark}
    marks = {}
    for position in to:
        where = chosen.definition.check_held(Partition(*position[:3]), position.offset)
        start, end, _ = partitions[where]
        if position.offset > end:
            raise OutOfRange(str(where), position.offset, start, end)
        if position.offset < ledgers[where].mark:
            valid = f"{where}@{ledgers[where].mark} or a later position"
            raise InvalidValue(_TARGET, str(position), valid, why)
        marks[where] = position.offset
    return marks


def _moves(
    log: Log, ledgers: Mapping[Partition, Progress], marks: Mapping[Partition, int]
) -> Iterable[PartitionReset]:
    for where, mark in marks.items():
        end, progress = log.bounds(where).end, ledgers[where]
        unread = amount_within(log, where, progress.holes(end)).records
        passed = amount_within(log, where, progress.holes(min(mark, end))).records
        later = amount_within(log, where, [(mark, end)]).records
        yield PartitionReset(where, progress.mark, mark, later - (unread - passed), passed)


def _check_shards(stored: StoredSubscription, moves: Iterable[PartitionReset]) -> None:
    """Raise `InvalidValue` if some key has different shards in the storage topics that are read
    again and those after them."""
    definition, topic = stored.definition, stored.main.definition
    oldest = min((each.partition.storage for each in moves if each.again), default=None)
    if oldest is None:
        return
    used = [each for each in topic.storages if oldest <= each < definition.opened]
    shapes = [NamedShape(f"{definition.topic}/{each}", topic.storage[each]) for each in used]
    if not shapes:
        return
    found = find_disagreement(definition.strategy, topic.router, shapes, definition.shards)
    if found is None:
        return
    agreed = valid_shards(definition.strategy, topic.router, [each.shape for each in shapes])[0]
    key = "keys" if found.example is None else f"keys such as {found.example!r}"
    raise InvalidValue(
        _TARGET,
        str(shapes[0].name),
        f"{shapes[-1].name} or later",
        "or change the number of shards first: tailrace subscription reshard"
        f" {stored.name} {agreed}",
        f"{stored.name} has {definition.shards} shards, and {key} change their shard between"
        f" {found.one.name} and {found.other.name}: they would not be read again in order",
    )
