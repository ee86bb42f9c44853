"""Sending a group somewhere: into topics that are new to it, and wherever an operator says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.errors import Busy, Conflict, InvalidValue, UnknownTopic
from tailrace.group.definition import (
    StoredGroup,
    TopicFilter,
    consumer_name,
    matching_topics,
    read_group,
)
from tailrace.group.seeking import (
    Order,
    SeekState,
    StoredSeek,
    find_seek,
    find_seeks,
    finish_pending,
    pending_change,
)
from tailrace.group.starting import (
    FROM_ZERO,
    Placement,
    Start,
    StartLike,
    format_start,
    parse_start,
    place_seek,
)
from tailrace.message import Partition, Position
from tailrace.topic.edge import Extreme
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at
from tailrace.topic.view import SWITCHES_MAX, Stored

_TARGET: Final = "seek target"


def plan_seek(backend: Backend, group: str, start: StartLike) -> dict[Partition, int]:
    """The marks that a seek would give, of all streams that it concerns. Changes nothing.

    `InvalidValue` and `OutOfRange` as for `seek`.
    """
    target = parse_start(start, _TARGET)
    return _all_marks(_orders(backend, group, read_group(backend, group), target))


def seek(backend: Backend, group: str, start: StartLike) -> dict[Partition, int]:
    """Send a group somewhere, take its units from their owners, and say which marks it has now.

    In all its topics, or by positions in theirs; see `place_seek`. It counts once the first step is
    committed, for all topics together. `UnknownGroup` when there is none; `InvalidValue` for a
    position in a topic that is not the group's; `OutOfRange` for one that is not there.
    """
    target = parse_start(start, _TARGET)
    return _all_marks(
        _carry_out(backend, group, lambda stored: _orders(backend, group, stored, target))
    )


def plan_skip(backend: Backend, group: str, position: Position) -> bool:
    """Whether a skip would do anything: the message is not acknowledged. Changes nothing.

    `InvalidValue` and `OutOfRange` as for `skip`.
    """
    return bool(_skip_order(backend, group, read_group(backend, group), position))


def skip(backend: Backend, group: str, position: Position) -> bool:
    """Count one message as acknowledged, and take its unit alone from its owner: whoever gets it
    next goes on behind that message.

    False, with nothing done, when it is acknowledged. `UnknownGroup` when there is no such group;
    `InvalidValue` for a position in a topic that is not the group's, or in a partition that is not
    there; `OutOfRange` when there is no message.
    """
    return bool(
        _carry_out(backend, group, lambda stored: _skip_order(backend, group, stored, position))
    )


def settle(backend: Backend, group: str) -> None:
    """Finish whatever is pending, and begin with topics that are new.

    Topics that were there before the group are started with it, so what is new begins at 0. When
    somebody else changes the same meanwhile, it is left to them.
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
        topic: Order(each, last.get(topic), target, FROM_ZERO)
        for topic, each in topics.items()
        if _is_new(each, last.get(topic))
    }
    if new:
        _send(backend, group, stored, new)


def _carry_out(
    backend: Backend, group: str, decide: Callable[[StoredGroup], dict[str, Order]]
) -> dict[str, Order]:
    """Have done what is decided when nothing else is under way; what that was."""
    for _ in range(SWITCHES_MAX):
        settle(backend, group)
        stored = read_group(backend, group)
        orders = decide(stored)
        if not all(last is not None and last.is_done(topic) for topic, last, *_ in orders.values()):
            continue  # Somebody began another one since.
        if not orders or _send(backend, group, stored, orders):
            return orders
    raise Busy(f"group {group!r} was changed {SWITCHES_MAX} times meanwhile", "try again later")


def _is_new(stored: Stored, last: StoredSeek | None) -> bool:
    """Whether a group has not begun with a topic, and nobody is about to."""
    return last is None or (last.seek.state is SeekState.DONE and not last.is_done(stored))


def _send(backend: Backend, group: str, stored: StoredGroup, orders: dict[str, Order]) -> bool:
    """Take all steps; False, with nothing done, when something is not as it was read."""
    try:
        backend.store.commit(pending_change(backend, group, stored.version, orders))
    except Conflict:
        return False
    for topic in orders:
        finish_pending(backend, group, topic)
    return True


def _orders(backend: Backend, group: str, stored: StoredGroup, target: Start) -> dict[str, Order]:
    """What a seek is to do in each topic that it concerns."""
    asked = target if isinstance(target, tuple) else None
    topics = _topics(backend, group, stored, asked)
    last = find_seeks(backend, group)
    orders = {}
    for topic, each in topics.items():
        try:
            placement = place_seek(backend.log, topic, each.definition, target)
        except UnknownTopic:
            continue  # It was deleted meanwhile.
        orders[topic] = Order(each, last.get(topic), format_start(target), placement)
    return orders


def _skip_order(
    backend: Backend, group: str, stored: StoredGroup, position: Position
) -> dict[str, Order]:
    """What a skip is to do in the topic of its message; nothing when that is acknowledged."""
    topic = position.topic
    found = _topics(backend, group, stored, [position])[topic]
    where = found.definition.check_partition(Partition(*position[:3]))
    record_at(backend.log, where, position.offset)
    if Progress.load(backend.table, consumer_name(group), where).acked(position.offset):
        return {}
    placement = Placement(False, {}, {(where.storage, where.number): position.offset})
    return {topic: Order(found, find_seek(backend, group, topic), str(position), placement)}


def _topics(
    backend: Backend, group: str, stored: StoredGroup, asked: Iterable[Position] | None
) -> dict[str, Stored]:
    """The topics of a group, or those of some positions, which must be among them."""
    topics = matching_topics(backend, TopicFilter(stored.definition.filter))
    if asked is None:
        return topics
    named = {position.topic for position in asked}
    if unknown := sorted(named - topics.keys()):
        valid = f"one of {', '.join(sorted(topics)[:10])}" if topics else "none yet"
        raise InvalidValue(f"topic of group {group!r}", unknown[0], valid)
    return {topic: topics[topic] for topic in named}


def _all_marks(orders: dict[str, Order]) -> dict[Partition, int]:
    """The marks of all streams that orders concern, also those at 0 that are not listed."""
    found: dict[Partition, int] = {}
    for topic, (stored, _, _, placement) in orders.items():
        marks = dict(placement.marks)
        if placement.whole:
            for storage, shape in enumerate(stored.definition.storage):
                for number in range(shape.partitions):
                    marks.setdefault((storage, number), 0)
        found |= {Partition(topic, *stream): marks[stream] for stream in sorted(marks)}
    return found
