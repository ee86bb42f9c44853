"""The dead letters of a subscription in the Python API.

A redelivery or a discard is a request that the owners of shards carry out: in order per key, once,
and audited. It waits while no worker runs.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, TypedDict, Unpack

from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import Clock
from tailrace.errors import InvalidValue
from tailrace.group.group import check_reason
from tailrace.message import Message, Mode, Op, Partition
from tailrace.payload import Payload
from tailrace.subscription.shard.moved_record import original_headers
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.backlog import count_unacknowledged
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.key_state import AttemptFailure, head_message, read_trace
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.lifecycle import read_again_if_deleted, read_subscription
from tailrace.subscription.store.names import dead_letter_queue
from tailrace.subscription.store.queue_scan import QueuedMessage, key_bytes, queued_record
from tailrace.subscription.store.requests.letters import open_letters
from tailrace.subscription.store.requests.making import (
    MadeRequest,
    Requester,
    is_pending,
    put_requests,
)
from tailrace.subscription.store.requests.selection import LetterSelection
from tailrace.topic.record_builder import Time, milliseconds
from tailrace.user_name import user_at_host


@dataclass(frozen=True, slots=True)
class SubscriptionLetter:
    """A dead letter of a subscription.

    `id` is its position in the DLQ. `message` is the message as it was pushed, with its position in
    the topic. `attempts` are those that failed, 0 for one that follows another of its key; `error`
    is the last error, and `failed` the time of the first. It is a dead letter since `since`.
    `failures` are its last 10 failed attempts, in order, and `traceback` is that of the last
    attempt that raised an error: empty if none did, as after a timeout.
    """

    id: str
    message: Message[Any]
    error: str
    attempts: int
    failed: datetime | None
    since: datetime
    failures: tuple[AttemptFailure, ...]
    traceback: str

    @property
    def key(self) -> str | None:
        """The key of the message."""
        return self.message.key


class LetterConditions(TypedDict, total=False):
    """Which dead letters: those that meet all conditions, of which one must be given.

    `key` is a key or several. `id` is a position in the DLQ or in the topic, or several. `error` is
    a text that the last error has, `error_pattern` a regular expression that is found in it. They
    became dead letters from `after` up to, not including, `before`: aware datetimes, or
    milliseconds since 1970. `all` stands for every dead letter.
    """

    key: str | bytes | Iterable[str | bytes]
    id: str | Iterable[str]
    error: str
    error_pattern: str
    after: Time
    before: Time
    all: bool


class DeadLetters(Unpicklable):
    """The dead letters of a subscription that wait for an operator."""

    def __init__(self, backend: Backend, subscription: str, clock: Clock) -> None:
        self._backend = backend
        self._subscription = subscription
        self._clock = clock

    def __repr__(self) -> str:
        return f"<DeadLetters of {self._subscription}>"

    def __len__(self) -> int:
        return self.count()

    def count(self) -> int:
        """Return the number of dead letters."""
        return read_again_if_deleted(self._backend, self._subscription, self._count)

    def _count(self) -> int:
        backend, stored = self._stored()
        name = dead_letter_queue(self._subscription)
        partitions = [
            Partition(name, each.storage, number)
            for each in stored.dlq.definition.storage_topics(name)
            for number in range(each.partitions)
        ]
        ledgers = read_ledgers(backend, stored, partitions)
        return count_unacknowledged(backend, ledgers, partitions)

    def list(self, limit: int = 100, *, type: Any = None) -> builtins.list[SubscriptionLetter]:
        """Return the dead letters, those of each key in order, at most `limit`.

        Their values are decoded to `type`; without one they have the type that they were pushed
        with.
        """

        def read() -> builtins.list[SubscriptionLetter]:
            backend, stored = self._stored()
            found = islice(open_letters(backend, stored).waiting(), limit)
            return [
                self._view(stored, queued_record(Queue.DLQ, each.partition, each.record), type)
                for each in found
            ]

        return read_again_if_deleted(self._backend, self._subscription, read)

    def show(self, id: str, *, type: Any = None) -> SubscriptionLetter:
        """Return one dead letter, by its position in the DLQ or in the topic. Raises
        `InvalidValue`."""

        def read() -> SubscriptionLetter:
            backend, stored = self._stored()
            (found,) = open_letters(backend, stored).select([id])
            return self._view(stored, queued_record(Queue.DLQ, found.partition, found.record), type)

        return read_again_if_deleted(self._backend, self._subscription, read)

    def redeliver(
        self,
        *,
        break_order: bool = False,
        attempts: int = 1,
        reason: str = "",
        **which: Unpack[LetterConditions],
    ) -> MadeRequest:
        """Ask the workers to redeliver dead letters, those of each key in order.

        Selected by key, error or time: all letters of the keys whose first letter meets the
        conditions, until no message of the key is behind. By id: these letters; one that is not the
        first of its key only with `break_order`. A letter that fails `attempts` times, with the
        delays of the retry policy, stays where it is and ends the redelivery of its key.
        """
        return self._put(which, RequestAction.REDELIVER, reason, break_order, attempts)

    def discard(self, *, reason: str, **which: Unpack[LetterConditions]) -> MadeRequest:
        """Ask the workers to drop the dead letters that meet the conditions, and no others. Those
        behind them stay dead letters until their key is redelivered. The audit keeps the reason,
        which must not be empty."""
        return self._put(which, RequestAction.DISCARD, check_reason(reason))

    def is_pending(self, request: MadeRequest) -> bool:
        """True if the workers have not carried out all of a request."""
        return is_pending(self._backend, self._subscription, request.id)

    def _stored(self) -> tuple[Backend, StoredSubscription]:
        return self._backend, read_subscription(self._backend, self._subscription)

    def _put(
        self,
        which: LetterConditions,
        action: RequestAction,
        reason: str,
        break_order: bool = False,
        attempts: int = 1,
    ) -> MadeRequest:
        command = f"dlq {action.value}"
        return put_requests(
            self._backend,
            self._subscription,
            _selection(**which),
            action,
            Requester(user_at_host(), os.getpid(), command, reason),
            now_ms=self._clock.now_ms(),
            break_order=break_order,
            attempts=attempts,
        )

    def _view(
        self, stored: StoredSubscription, queued: QueuedMessage, type: Any
    ) -> SubscriptionLetter:
        head = head_message(self._backend, stored, queued)
        record, origin = queued.record, queued.origin
        payload: Payload[Any] = Payload(type, stored.main.definition.content_type)
        message = Message(
            *origin.partition,
            origin.offset,
            queued.pushed_ms,
            Mode(record.mode),
            Op(record.op),
            record.key,
            original_headers(record.headers or {}),
            record.value,
            payload.decode_message,
            reset=origin.reset,
        )
        return SubscriptionLetter(
            head.position,
            message,
            head.error,
            head.attempts,
            head.failed,
            head.queued,
            head.failures,
            read_trace(self._backend, self._subscription, origin),
        )


def _selection(
    *,
    key: str | bytes | Iterable[str | bytes] = (),
    id: str | Iterable[str] = (),
    error: str = "",
    error_pattern: str = "",
    after: Time = None,
    before: Time = None,
    all: bool = False,
) -> LetterSelection:
    keys = [key] if isinstance(key, str | bytes) else [*key]
    ids = [id] if isinstance(id, str) else [*id]
    selection = LetterSelection(
        keys=tuple(map(key_bytes, keys)),
        positions=tuple(ids),
        error=error,
        error_pattern=error_pattern,
        after_ms=None if after is None else milliseconds(after),
        before_ms=None if before is None else milliseconds(before),
    )
    if (selection == LetterSelection()) is not all:
        valid = "a key, an id, an error, an error_pattern or a time; or all=True without them"
        raise InvalidValue("conditions", all, valid, problem="no dead letters selected")
    return selection
