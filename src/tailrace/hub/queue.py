"""A queue in the Python API: a topic, and the one subscription that consumes it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar, Unpack

from tailrace.backend.pickling import Unpicklable
from tailrace.delivery.load_control import LoadChange
from tailrace.delivery.retry import Retry
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue, UnknownQueue
from tailrace.hub.dead_letters import DeadLetters
from tailrace.hub.replay import Replay, ReplayOptions, range_ms
from tailrace.hub.subscription import DeliveryHandler, Subscription
from tailrace.hub.topic import Topic
from tailrace.message import Message, Receipt, Receipts
from tailrace.payload import Payload, ValueType
from tailrace.queue.draining import await_quiet
from tailrace.queue.lifecycle import (
    WantedQueue,
    check_queue,
    create_queue,
    find_queue,
    queue_errors,
    read_queue,
)
from tailrace.queue.rebalance import Rebalanced, rebalance
from tailrace.queue.replay.job import stored_replays
from tailrace.queue.replay.lifecycle import NewReplay, create_replay
from tailrace.queue.stats import QueueStats, read_stats
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.store.lifecycle import read_again_if_deleted, read_subscription
from tailrace.subscription.store.owners import shard_owners, workers
from tailrace.subscription.worker.effects import Effects
from tailrace.subscription.worker.guarantee import Guarantee
from tailrace.subscription.worker.options import BATCH_SIZE
from tailrace.topic.composite import Definition, first_definition
from tailrace.topic.envelope import Envelope
from tailrace.topic.record_builder import Headers, Key, Time
from tailrace.topic.router import RouterKind
from tailrace.user_name import user_at_host

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.subscription.worker.worker import Worker, WorkerStats

T = TypeVar("T")


SHARDS: Final = 12
"""The number of shards of a queue that is created without one."""


class QueueOptions(NamedTuple):
    """How a queue is opened. None for what an existing queue need not agree with."""

    shards: int | None
    retry: Retry | None
    on_dead_letter: str | None
    strict: bool
    from_topic: bool
    load: LoadChange


def open_queue(hub: Hub, name: str, type: Any, options: QueueOptions, now_ms: int) -> Queue[Any]:
    """Open a queue, or create it. See `Hub.queue`."""
    backend = hub.backend
    policy = options.on_dead_letter
    wanted = WantedQueue(
        options.shards,
        options.retry,
        None if policy is None else OnDeadLetter.parse(policy),
        options.load,
    )
    if not isinstance(options.retry, Retry | None):
        raise InvalidValue("retry", options.retry, "a tailrace.Retry, such as Retry(attempts=5)")
    found = find_queue(backend, name)
    if found is None and options.strict:
        raise UnknownQueue(name, backend.name, hub.queues())
    if found is None:
        topic = None if options.from_topic else _new_topic(type, options.shards, now_ms)
        if options.from_topic:
            hub.topic(name, type)  # it must exist, and the type must agree
        create_queue(backend, name, wanted, topic, now_ms)
    else:
        read_subscription(backend, name)  # its topic must exist
        check_queue(backend, name, found, wanted)
    return Queue(hub.topic(name, type), hub.subscription)


def _new_topic(type: Any, shards: int | None, now_ms: int) -> Definition:
    payload: Payload[Any] = Payload(type)
    return first_definition(
        partitions=SHARDS if shards is None else shards,
        router=RouterKind.SHARD_CONSISTENT,
        content_type=payload.content_type,
        any_count=False,
        created_ms=now_ms,
        identity=secrets.token_hex(8),
        value_type=ValueType.of(type),
    )


class Queue(Unpicklable, Generic[T]):
    """A queue: pushes are stored, and consumers handle each message, in order per key.

    A message that fails steps aside with its key and is tried again; after its last attempt it is a
    dead letter. Threads may share the object, and a forked process may use it.
    """

    def __init__(self, topic: Topic[T], open_subscription: Callable[[str], Subscription]) -> None:
        self.topic = topic
        """The topic that holds its messages. Groups and other subscriptions may read it too."""
        self.subscription = open_subscription(topic.name)
        """What consumes it. It has the name of the queue."""
        self._open_subscription = open_subscription
        self._backend = topic.view.backend

    @property
    def name(self) -> str:
        """The name of the queue, of its topic and of its subscription."""
        return self.topic.name

    def __repr__(self) -> str:
        return f"<Queue {self.name} of {self._backend.name}>"

    def push(
        self,
        value: T,
        *,
        key: Key = None,
        headers: Headers = None,
        timestamp: Time = None,
        dedup_id: str | None = None,
    ) -> Receipt:
        """Store one message after the earlier ones of its key, and return its position.

        Messages without a key are handled in any order. See `Topic.push`.
        """
        return self.topic.push(
            value, key=key, headers=headers, timestamp=timestamp, dedup_id=dedup_id
        )

    def push_many(self, messages: Iterable[tuple[Key, T]] | Iterable[Envelope[T]]) -> Receipts:
        """Store messages, given as pairs of key and value or as `Envelope`s, in this order: all of
        them or none, over all shards."""
        return self.topic.push_many(messages)

    def tail(
        self,
        handler: DeliveryHandler,
        *,
        id: str | None = None,
        concurrency: int = 16,
        batch: bool = False,
        batch_size: int | None = None,
        acking: bool = True,
        guarantee: str | None = None,
        effects: Effects | None = None,
        type: Any = None,
        timeout: timedelta | str = "30s",
        filter: Callable[[Message[Any]], bool] | None = None,
        drain_timeout: timedelta | str = "30s",
    ) -> QueueConsumer:
        """Start a consumer in this process, and return it at once.

        It calls the handler, a function or a coroutine function, with a `Delivery` of each message,
        or with `batch` with a list of them. `guarantee` is ``"at-least-once"``, the default,
        ``"exactly-once"`` or ``"at-most-once"``, which is also ``acking=False``. See
        `Subscription.start` for the other options.
        """
        chosen = _guarantee(guarantee, acking)
        called: Any = handler
        with queue_errors(self.name):
            worker = self.subscription.start(
                called,
                type=type,
                id=id,
                concurrency=concurrency,
                timeout=timeout,
                filter=filter,
                drain_timeout=drain_timeout,
                guarantee=chosen.value,
                batch=batch,
                batch_size=batch_size,
                effects=effects,
            )
        size = batch_size if batch_size is not None else BATCH_SIZE if batch else 1
        return QueueConsumer(worker, chosen, size)

    def stats(self) -> QueueStats:
        """Count its messages by what became of them, in all and for each shard."""
        return read_again_if_deleted(self._backend, self.name, self._stats)

    def _stats(self) -> QueueStats:
        with queue_errors(self.name):
            stored = read_subscription(self._backend, self.name)
        owners = shard_owners(self._backend, self.name, stored.definition)
        present = workers(self._backend, self.name, owners)
        return read_stats(self._backend, stored, len(present))

    def pause(
        self,
        reason: str = "paused",
        *,
        drain: bool = False,
        timeout: timedelta | str | None = None,
    ) -> bool:
        """Pause the queue: no handler is called until `play`, over restarts too. Pushes go on.

        With `drain`, returns when nothing is in flight in any process; False if that takes longer
        than `timeout`. Without it, returns False if the queue was paused already.
        """
        limit_s = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        with queue_errors(self.name):
            paused = self.subscription.pause(reason)
            if not drain:
                return paused
            return await_quiet(self._backend, self.name, self.topic.clock, limit_s)

    def play(self) -> bool:
        """End a pause. False if the queue is not paused."""
        with queue_errors(self.name):
            return self.subscription.resume()

    def rebalance(self, *, timeout: timedelta | str = "10s") -> Rebalanced:
        """Wait until the shards are divided evenly among the consumers, and say what moved.

        They are divided so by themselves whenever a consumer joins or leaves.
        """
        limit_s = parse_duration(timeout, "timeout").total_seconds()
        with queue_errors(self.name):
            return rebalance(self._backend, self.name, self.topic.clock, limit_s)

    def replay(
        self,
        start: Time,
        end: Time = None,
        handler: DeliveryHandler | None = None,
        *,
        id: str | None = None,
        **options: Unpack[ReplayOptions],
    ) -> Replay:
        """Replay the messages whose time is `start` or later and before `end`, which is now unless
        given: start to work on it in this process, and return at once.

        The handler is called with each of them, under the replay's own name, with retries and dead
        letters of its own, while the queue goes on. Without a handler they are pushed again to the
        queue, once each, in order per key; such copies are never replayed. It is a stored job:
        `resume_replay` continues it after its process has ended, and in further processes.

        Raises `InvalidValue` if the range starts after its end, and `NotRetained` if messages of it
        may have been removed.
        """
        now_ms = self.topic.clock.now_ms()
        times = range_ms(start, end, now_ms)
        new = NewReplay(*times, handler is not None, user_at_host(), id)
        stored = create_replay(self._backend, self.name, new, now_ms)
        return self.find_replay(stored.id).start(handler, **options)

    def resume_replay(
        self, id: str, handler: DeliveryHandler | None = None, **options: Unpack[ReplayOptions]
    ) -> Replay:
        """Continue a replay in this process, beside others that may work on it, and return at once.

        It needs a handler if it was created with one. Raises `UnknownReplay`.
        """
        return self.find_replay(id).start(handler, **options)

    def find_replay(self, id: str) -> Replay:
        """Return a replay, to look at or to cancel. Raises `UnknownReplay`."""
        return Replay(self.topic, id, self._open_subscription)

    def replays(self) -> list[Replay]:
        """Return its replays, the oldest first: those that run, and the newest that have ended."""
        return [self.find_replay(each.id) for each in stored_replays(self._backend, self.name)]

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters: to list, show, redeliver and discard."""
        read_queue(self._backend, self.name)
        return self.subscription.dead_letters


class QueueConsumer(Unpicklable):
    """A consumer of a queue in this process. It works until it is shut down.

    Leave its `with` block, or call `shutdown`, to end it in an orderly way.
    """

    def __init__(self, worker: Worker, guarantee: Guarantee, batch_size: int) -> None:
        self._worker = worker
        self.guarantee = guarantee.value
        """The guarantee that its handler declares."""
        self.is_acking = guarantee is not Guarantee.AT_MOST_ONCE
        """False if messages are acknowledged before they are handled."""
        self.batch_size = batch_size
        """The number of messages that are prepared at a time."""

    @property
    def id(self) -> str:
        """The name of the consumer."""
        return self._worker.id

    def __repr__(self) -> str:
        return f"<QueueConsumer {self.id} of {self._worker.subscription}, {self.guarantee}>"

    def stats(self) -> WorkerStats:
        """Return its shards, and its calls by outcome."""
        return self._worker.stats()

    def stop(self) -> None:
        """Call no more messages, and have `wait` return. Also in a signal handler."""
        self._worker.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the consumer is stopped. False after the timeout. Raises the error that ended
        it: `Fenced` if a newer consumer has its id, `UnknownQueue` if the queue was deleted."""
        with queue_errors(self._worker.subscription):
            return self._worker.wait(timeout_s)

    def shutdown(self) -> bool:
        """End the consumer: wait for its calls, store their outcomes, and hand its shards over.

        False if a call did not end in time: its message will be redelivered.
        """
        return self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()


def _guarantee(text: str | None, acking: bool) -> Guarantee:
    if text is None:
        return Guarantee.AT_LEAST_ONCE if acking else Guarantee.AT_MOST_ONCE
    chosen = Guarantee.parse(text)
    if not acking and chosen is not Guarantee.AT_MOST_ONCE:
        raise InvalidValue("guarantee", text, "at-most-once with acking=False")
    return chosen
