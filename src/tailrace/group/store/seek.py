"""Seeks and skips of a group, and its start in topics that are new to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Conflict, InvalidValue, UnknownTopic
from tailrace.group.store.definition import (
    StoredGroup,
    TopicFilter,
    consumer_name,
    matching_topics,
    read_group,
)
from tailrace.group.store.seek_steps import (
    SeekOrder,
    SeekState,
    StoredSeek,
    find_seek,
    find_seeks,
    finish_pending,
    pending_change,
)
from tailrace.group.store.start import (
    FROM_ZERO,
    Start,
    StartLike,
    StartMarks,
    format_start,
    parse_start,
    place_seek,
)
from tailrace.message import Partition, Position
from tailrace.topic.ledger import Progress
from tailrace.topic.offset_spec import Extreme
from tailrace.topic.reading import record_at
from tailrace.topic.view import StoredDefinition

_TARGET: Final = "seek target"


def plan_seek(backend: Backend, group: str, start: StartLike) -> dict[Partition, int]:
    """Return the marks that a seek would set. Changes nothing. Raises as `seek` does."""
    target = parse_start(start, _TARGET)
    return _all_marks(_orders(backend, group, read_group(backend, group), target))


def seek(backend: Backend, group: str, start: StartLike) -> dict[Partition, int]:
    """Seek a group, fence the owners of the partitions concerned, and return the new marks.

    The seek applies to all topics of the group, or to those of the positions; see `place_seek`. It
    takes effect for all topics together, once its first step is committed. Raises `UnknownGroup`,
    `InvalidValue` for a position in a topic that is not the group's, and `OutOfRange` for a
    position that does not exist.
    """
    target = parse_start(start, _TARGET)
    return _all_marks(
        _execute(backend, group, lambda stored: _orders(backend, group, stored, target))
    )


def plan_skip(backend: Backend, group: str, position: Position) -> bool:
    """True if a skip would acknowledge the message: it is not acknowledged yet. Changes nothing.

    Raises as `skip` does.
    """
    return bool(_skip_order(backend, group, read_group(backend, group), position))


def skip(backend: Backend, group: str, position: Position) -> bool:
    """Acknowledge one message, and fence the owner of its partition alone: the next owner continues
    after that message.

    Returns False and changes nothing if the message is already acknowledged. Raises `UnknownGroup`,
    `InvalidValue` for a position in a topic that is not the group's or in an unknown partition, and
    `OutOfRange` if there is no message at the position.
    """
    return bool(
        _execute(backend, group, lambda stored: _skip_order(backend, group, stored, position))
    )


def finish_seeks(backend: Backend, group: str) -> None:
    """Finish pending seeks, and start the group in topics that are new to it.

    Topics that existed before the group were started with it, so new topics start at 0. Concurrent
    changes by another process are left to that process.
    """
    stored = read_group(backend, group)
    last = find_seeks(backend, group)
    pending = [topic for topic, each in last.items() if each.seek.state is SeekState.PENDING]
    if pending:
        for topic in pending:
            finish_pending(backend, group, topic)
        last = find_seeks(backend, group)
    topics = matching_topics(backend, TopicFilter(stored.definition.filter))
    target = format_start(Extreme.EARLIEST)
    new = {
        topic: SeekOrder(each, last.get(topic), target, FROM_ZERO)
        for topic, each in topics.items()
        if _is_new(each, last.get(topic))
    }
    if new:
        _commit(backend, group, stored, new)


def _execute(
    backend: Backend, group: str, decide: Callable[[StoredGroup], dict[str, SeekOrder]]
) -> dict[str, SeekOrder]:
    """Execute the orders of `decide` once no other seek is pending. Returns the orders."""

    def attempt() -> dict[str, SeekOrder] | None:
        finish_seeks(backend, group)
        stored = read_group(backend, group)
        orders = decide(stored)
        if not all(last is not None and last.is_done(topic) for topic, last, *_ in orders.values()):
            return None  # Another process began a seek meanwhile.
        return orders if not orders or _commit(backend, group, stored, orders) else None

    return retry_on_conflict(attempt, f"group {group!r}")


def _is_new(stored: StoredDefinition, last: StoredSeek | None) -> bool:
    """True if a group has not started in a topic, and no start is pending."""
    return last is None or (last.seek.state is SeekState.DONE and not last.is_done(stored))


def _commit(
    backend: Backend, group: str, stored: StoredGroup, orders: dict[str, SeekOrder]
) -> bool:
    """Commit and finish seeks. False, with nothing changed, after a concurrent change."""
    try:
        backend.store.commit(pending_change(backend, group, stored.version, orders))
    except Conflict:
        return False
    for topic in orders:
        finish_pending(backend, group, topic)
    return True


def _orders(
    backend: Backend, group: str, stored: StoredGroup, target: Start
) -> dict[str, SeekOrder]:
    """Return the orders of a seek, by topic."""
    asked = target if isinstance(target, tuple) else None
    topics = _topics(backend, group, stored, asked)
    last = find_seeks(backend, group)
    orders = {}
    for topic, each in topics.items():
        try:
            marks = place_seek(backend.log, topic, each.definition, target)
        except UnknownTopic:
            continue  # The topic was deleted meanwhile.
        orders[topic] = SeekOrder(each, last.get(topic), format_start(target), marks)
    return orders


def _skip_order(
    backend: Backend, group: str, stored: StoredGroup, position: Position
) -> dict[str, SeekOrder]:
    """Return the order of a skip, by topic; empty if the message is acknowledged."""
    topic = position.topic
    found = _topics(backend, group, stored, [position])[topic]
    where = found.definition.check_held(Partition(*position[:3]), position.offset)
    record_at(backend.log, where, position.offset)
    if Progress.load(backend.table, consumer_name(group), where).acked(position.offset):
        return {}
    marks = StartMarks(False, {}, {(where.storage, where.number): position.offset})
    return {topic: SeekOrder(found, find_seek(backend, group, topic), str(position), marks)}


def _topics(
    backend: Backend, group: str, stored: StoredGroup, asked: Iterable[Position] | None
) -> dict[str, StoredDefinition]:
    """Return the topics of a group, or only those of positions. Raises `InvalidValue`."""
    topics = matching_topics(backend, TopicFilter(stored.definition.filter))
    if asked is None:
        return topics
    named = {position.topic for position in asked}
    if unknown := sorted(named - topics.keys()):
        valid = f"one of {', '.join(sorted(topics)[:10])}" if topics else "none yet"
        raise InvalidValue(f"topic of group {group!r}", unknown[0], valid)
    return {topic: topics[topic] for topic in named}


def _all_marks(orders: dict[str, SeekOrder]) -> dict[Partition, int]:
    """Return the marks that orders set, including those at 0 that the orders do not list."""
    found: dict[Partition, int] = {}
    for topic, (stored, _, _, start) in orders.items():
        marks = dict(start.marks)
        if start.whole:
            for each in stored.definition.storage_topics(topic):
                for number in range(each.partitions):
                    marks.setdefault((each.storage, number), 0)
        found |= {Partition(topic, *stream): marks[stream] for stream in sorted(marks)}
    return found
