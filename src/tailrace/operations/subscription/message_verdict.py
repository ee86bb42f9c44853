"""What a subscription has done with a message, or what the message waits for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.message import Position
from tailrace.operations.explanation import Remedy, Verdict
from tailrace.operations.health import time_text
from tailrace.operations.subscription.explain_key import (
    IN_QUEUE,
    attempts_text,
    next_attempt_text,
    run_remedy,
)
from tailrace.reserved_names import DEAD_LETTER_QUEUE_PREFIX, RETRY_QUEUE_PREFIX
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.key_state import HeadMessage
from tailrace.subscription.store.lifecycle import read_again_if_deleted, read_subscription
from tailrace.subscription.store.message_state import MessagePlace, read_message_place
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import find_pause
from tailrace.subscription.store.scaling import subscriptions_of
from tailrace.topic.view import find


def subscriptions_with(hub: Hub, topic: str) -> list[str]:
    """Return the subscriptions that deliver a topic, or the one whose queue it is."""
    for prefix in (RETRY_QUEUE_PREFIX, DEAD_LETTER_QUEUE_PREFIX):
        if topic.startswith(prefix) and topic.removeprefix(prefix) in hub.subscriptions():
            return [topic.removeprefix(prefix)]
    return delivering(hub, topic)


def delivering(hub: Hub, topic: str) -> list[str]:
    """Return the subscriptions that deliver a topic, by name."""
    stored = find(hub.backend, topic)
    if stored is None:
        return []
    identity = stored.definition.identity
    return [name for name, _ in subscriptions_of(hub.backend, topic, identity)]


def judge_message(hub: Hub, name: str, position: Position) -> Verdict:
    """Return what a subscription has done with a message; the position is one in its topic, in RQ
    or in DLQ."""
    return read_again_if_deleted(hub.backend, name, lambda: _judge(hub, name, position))


def _judge(hub: Hub, name: str, position: Position) -> Verdict:
    stored = read_subscription(hub.backend, name)
    place = read_message_place(hub.backend, stored, position)
    head = place.message
    if head is None:
        why = "delivered, discarded, not matched by the filter, or before its start"
        return Verdict("ACKNOWLEDGED", f"{_origin(place, position)}{why}", waits=False)
    if place.closed:
        storage = Position.parse(place.origin).storage
        why = f"in storage {storage}, which the next generation reads once all before is finished"
        remedy = Remedy("subscription", f"tailrace explain {name} --subscription")
        return Verdict("WAITING", why, (remedy,))
    if head.queue is Queue.MQ:
        found = _waiting(hub, stored, place)
    else:
        found = (_dead if head.queue is Queue.DLQ else _retried)(hub, stored, place, head)
    return Verdict(found.state, _origin(place, position) + found.why, found.remedies)


def _origin(place: MessagePlace, position: Position) -> str:
    """Return where a message was pushed, if the position is that of its record in a queue."""
    return "" if place.origin == str(position) else f"the message {place.origin}; "


def _dead(hub: Hub, stored: StoredSubscription, place: MessagePlace, head: HeadMessage) -> Verdict:
    name = stored.name
    blocks = stored.definition.policy is OnDeadLetter.BLOCK and place.key is not None
    if blocks and place.ahead:
        why = f"{_queued(head)}, {_behind(hub, place, head.queue)}"
        return Verdict("BEHIND A DEAD LETTER", why, tuple(_redelivery(name, place, None)))
    last = f"{attempts_text(head)}: " if head.attempts else ""
    why = f"since {time_text(head.queued)}; {last}{head.error}"
    if blocks:
        why += f"; it blocks key {place.key!r}"
    return Verdict("DEAD LETTER", why, tuple(_redelivery(name, place, head)))


def _redelivery(name: str, place: MessagePlace, head: HeadMessage | None) -> Iterator[Remedy]:
    if place.key is None:
        yield Remedy("redeliver", f"tailrace dlq {name} redeliver {place.origin}")
    else:
        key = shlex.quote(place.key)
        outcome = "the dead letters of its key, in order"
        yield Remedy("redeliver", f"tailrace dlq {name} redeliver --key {key}", outcome)
    if head is not None:
        yield Remedy("discard", f"tailrace dlq {name} discard {place.origin} --reason TEXT")


def _retried(
    hub: Hub, stored: StoredSubscription, place: MessagePlace, head: HeadMessage
) -> Verdict:
    state, remedies = _attended(hub, stored, place)
    if place.ahead:
        why = f"{_queued(head)}, {_behind(hub, place, head.queue)}"
        return Verdict(state or "WAITING", why, remedies)
    last = f"; last error: {head.error}" if head.error else ""
    return Verdict(state or "RETRYING", f"{next_attempt_text(head)}{last}", remedies)


def _waiting(hub: Hub, stored: StoredSubscription, place: MessagePlace) -> Verdict:
    state, remedies = _attended(hub, stored, place)
    first = None if place.key is None else hub.subscription(stored.name).explain(place.key).head
    if first is not None and first.origin != place.origin:
        return Verdict(state or "WAITING", _behind(hub, place, Queue.MQ), remedies)
    return Verdict(state or "PENDING", "in flight, or the next of its key to be called", remedies)


def _attended(
    hub: Hub, stored: StoredSubscription, place: MessagePlace
) -> tuple[str | None, tuple[Remedy, ...]]:
    """Return the state of a message that nobody calls now, with what helps; None if its shard has
    an owner that works."""
    name = stored.name
    if find_pause(hub.backend, name) is not None:
        return "PAUSED", (Remedy("resume", f"tailrace subscription resume {name}"),)
    if place.shard not in shard_owners(hub.backend, name, stored.definition):
        return "UNATTENDED", (run_remedy(name, stored.definition.endpoint),)
    return None, ()


def _queued(head: HeadMessage) -> str:
    return f"{IN_QUEUE[head.queue]} since {time_text(head.queued)}"


def _behind(hub: Hub, place: MessagePlace, queue: Queue) -> str:
    """Return the message that a message of a queue waits for."""
    first = None
    if place.key is not None:
        first = hub.subscription(place.subscription).explain(place.key).head
    if first is None or first.origin == place.origin:
        return f"behind {format_amount(place.ahead, 'message')} of its key"
    text = f"behind {first.origin} of the same key"
    if first.queue is not queue:
        text += f", {IN_QUEUE[first.queue]}"
    elif place.ahead > 1:
        text += f" and {place.ahead - 1:,} more"
    return text
