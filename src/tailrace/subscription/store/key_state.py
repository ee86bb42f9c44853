"""The state of a key in a subscription: what holds its messages back, and who works on them.

Derived from the stored queues, ledgers and attempts, and from the grants of shards. A worker may be
further than that for an instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache

from tailrace.backend.contract import Backend
from tailrace.clock import utc_time
from tailrace.delivery.dead_letters.letter import ERROR
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import (
    Attempts,
    Origin,
    attempts_key,
    decode_attempts,
    trace_key,
)
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.turn import NO_ATTEMPTS
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.generations.opening import as_opened, closed_storage
from tailrace.subscription.store.owners import ShardOwner, shard_owners
from tailrace.subscription.store.pause import Pause, find_pause
from tailrace.subscription.store.queue_scan import (
    KeyPlaces,
    QueuedKey,
    QueuedMessage,
    find_key,
    key_bytes,
    key_places,
    unacknowledged,
)


class KeyStatus(Enum):
    """What a key of a subscription does. The first that applies is its state."""

    BLOCKED = "blocked"
    """A dead letter holds it: its later messages follow into DLQ."""
    PAUSED = "paused"
    """The subscription is paused."""
    UNATTENDED = "unattended"
    """No worker owns its shard."""
    RETRYING = "retrying"
    """Its first message is in RQ: a handler failed, and is called again."""
    WAITING = "waiting"
    """Its first message is in a partition that follows unfinished ones, or in a storage topic that
    the next generation reads."""
    FLOWING = "flowing"
    """Nothing holds it."""


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """A failed attempt: when it ended, and its error, truncated to 200 characters."""

    at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class HeadMessage:
    """The first message of a key, or another one, and its attempts.

    `origin` is its position in the topic, and `pushed` its timestamp there. `position` is that of
    its record in `queue`, which has it since `queued`. `attempts` are those that failed, of
    `attempts_max`; None means without end. `failed` is the time of the first failure, `error` the
    last error, and `due` the time of the next attempt, if it is to be retried. `failures` are the
    last 10 failed attempts, in order.
    """

    queue: Queue
    origin: str
    pushed: datetime
    position: str
    queued: datetime
    attempts: int
    attempts_max: int | None
    failed: datetime | None
    error: str
    due: datetime | None
    failures: tuple[AttemptFailure, ...]


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of a key in a subscription.

    `head` is its first message that is not acknowledged; None if there is none. `mq`, `rq` and
    `dlq` count those in each queue, `closed` those in storage topics of the next generation; with
    `complete` False there may be more. `waits_for` are the partitions that must be finished first.
    `owner` is None if no worker owns the shard.
    """

    subscription: str
    key: str
    state: KeyStatus
    shard: int
    owner: ShardOwner | None
    paused: Pause | None
    on_dead_letter: OnDeadLetter
    head: HeadMessage | None
    mq: int
    rq: int
    dlq: int
    closed: int = 0
    closed_storage: int | None = None
    waits_for: tuple[str, ...] = ()
    complete: bool = True

    @property
    def since(self) -> datetime | None:
        """The time since when it is in this state, if that is known."""
        if self.state is KeyStatus.PAUSED and self.paused is not None:
            return utc_time(self.paused.since_ms)
        if self.head is None or self.state not in (KeyStatus.BLOCKED, KeyStatus.RETRYING):
            return None
        return self.head.queued

    @property
    def behind(self) -> int:
        """The number of messages behind the first one."""
        return max(0, self.mq + self.rq + self.dlq + self.closed - 1)


def read_key_state(backend: Backend, stored: StoredSubscription, key: str | bytes) -> KeyState:
    """Return the state of a key. `InvalidValue` for an empty key."""
    stored = as_opened(stored)
    wanted, name, definition = key_bytes(key), stored.name, stored.definition
    places = key_places(stored, wanted)
    # The oldest queue is read last: a message that moves meanwhile is seen twice, not missed.
    found = {
        queue: find_key(backend, stored, queue, places.of(queue), wanted)
        for queue in (Queue.MQ, Queue.RQ, Queue.DLQ)
    }
    closed = find_key(backend, stored, Queue.MQ, places.closed, wanted)
    head = _head(found, closed, definition.policy)
    waits_for = _waits_for(backend, stored, places, head)
    owner = shard_owners(backend, name, definition).get(places.shard)
    pause = find_pause(backend, name)
    in_closed = head is not None and head.partition in places.closed
    return KeyState(
        name,
        wanted.decode("utf-8", "backslashreplace"),
        _status(head, pause, owner, bool(waits_for) or in_closed, definition.policy),
        places.shard,
        owner,
        pause,
        definition.policy,
        None if head is None else head_message(backend, stored, head),
        found[Queue.MQ].count,
        found[Queue.RQ].count,
        found[Queue.DLQ].count,
        closed.count,
        closed_storage(stored),
        tuple(map(str, sorted(waits_for))),
        all(each.complete for each in (*found.values(), closed)),
    )


def head_message(
    backend: Backend, stored: StoredSubscription, message: QueuedMessage
) -> HeadMessage:
    """Return a message with its attempts."""
    attempts = read_attempts(backend, stored.name, message.origin)
    headers = {} if message.queue is Queue.MQ else message.record.headers or {}
    retried = message.queue is Queue.RQ and attempts.due_ms
    return HeadMessage(
        message.queue,
        str(message.origin),
        utc_time(message.pushed_ms),
        message.position,
        utc_time(message.record.timestamp),
        attempts.count,
        stored.definition.attempts,
        utc_time(attempts.since_ms) if attempts.since_ms else None,
        attempts.error or headers.get(ERROR, b"").decode(),
        utc_time(attempts.due_ms) if retried else None,
        attempt_failures(attempts),
    )


def attempt_failures(attempts: Attempts) -> tuple[AttemptFailure, ...]:
    """Return the last failed attempts of a message, in order, for people."""
    return tuple(AttemptFailure(utc_time(each.at_ms), each.error) for each in attempts.failures)


def read_attempts(backend: Backend, name: str, origin: Origin) -> Attempts:
    """Return the stored attempts of a message."""
    value = backend.table.get(*attempts_key(name, origin))
    return NO_ATTEMPTS if value is None else decode_attempts(value)


def read_trace(backend: Backend, name: str, origin: Origin) -> str:
    """Return the traceback of a dead letter; empty if its handler has raised no error."""
    value = backend.table.get(*trace_key(name, origin))
    return "" if value is None else value.decode()


def _head(
    found: dict[Queue, QueuedKey], closed: QueuedKey, policy: OnDeadLetter
) -> QueuedMessage | None:
    """Return the oldest message that holds the others back, or is the next."""
    blocks = policy is OnDeadLetter.BLOCK
    queues = (Queue.DLQ, Queue.RQ, Queue.MQ) if blocks else (Queue.RQ, Queue.MQ)
    heads = (*(found[queue].head for queue in queues), closed.head)
    return next((head for head in heads if head is not None), None)


def _status(
    head: QueuedMessage | None,
    pause: Pause | None,
    owner: ShardOwner | None,
    waits: bool,
    policy: OnDeadLetter,
) -> KeyStatus:
    queue = None if head is None else head.queue
    if queue is Queue.DLQ and policy is OnDeadLetter.BLOCK:
        return KeyStatus.BLOCKED
    if pause is not None:
        return KeyStatus.PAUSED
    if owner is None:
        return KeyStatus.UNATTENDED
    if queue is Queue.RQ:
        return KeyStatus.RETRYING
    return KeyStatus.WAITING if waits else KeyStatus.FLOWING


def _waits_for(
    backend: Backend, stored: StoredSubscription, places: KeyPlaces, head: QueuedMessage | None
) -> set[Partition]:
    """Return the unfinished partitions that must be finished before the first message."""
    if head is None or head.queue is not Queue.MQ or head.partition not in places.mq:
        return set()
    follows = stored.streams(places.shard).follows

    @cache
    def finished(partition: Partition) -> bool:
        if not backend.log.bounds(partition).sealed:
            return False
        left = any(batch.num_rows for batch in unacknowledged(backend, stored, partition))
        return not left and all(map(finished, follows[partition]))

    return {each for each in follows[head.partition] if not finished(each)}
