"""A subscription in the Python API."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypeVar, Unpack

from tailrace.amount import format_amount
from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import Clock, SystemClock
from tailrace.delivery.retry import Retry
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.group.consumer.handlers import BatchHandler, Handler, awaits
from tailrace.group.group import check_reason
from tailrace.group.store.history import record_change
from tailrace.group.store.start import StartLike
from tailrace.hub.dead_letters import DeadLetters
from tailrace.hub.endpoint import DeliveryOptions, OptionsOfHandlers, check_called, delivery_changes
from tailrace.hub.handler import check_batch, check_handler, label_of, payload_type
from tailrace.hub.topic import Topic
from tailrace.message import Message, Position
from tailrace.payload import Payload, ValueType
from tailrace.settings import HubSettings
from tailrace.subscription.store.definition import StoredSubscription, SubscriptionDefinition
from tailrace.subscription.store.describe import SubscriptionInfo, describe
from tailrace.subscription.store.generations.asking import ask_for_shards
from tailrace.subscription.store.generations.awaiting import await_generation
from tailrace.subscription.store.generations.plan import ShardsPlan, plan_shards
from tailrace.subscription.store.group_state import GroupStates, read_group_state
from tailrace.subscription.store.key_state import KeyState, read_key_state
from tailrace.subscription.store.lifecycle import (
    delete_subscription,
    read_again_if_deleted,
    read_definition,
    read_subscription,
    update_settings,
)
from tailrace.subscription.store.message_state import MessagePlace, read_message_place
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.pause import pause, resume
from tailrace.subscription.store.reset.plan import ResetPlan
from tailrace.subscription.store.reset.steps import Operator, plan_reset, reset
from tailrace.subscription.worker.defaults import CONCURRENCY, DRAIN_TIMEOUT, TIMEOUT
from tailrace.subscription.worker.effects import Effects
from tailrace.subscription.worker.options import StartOptions, WorkerOptions
from tailrace.topic.view import View
from tailrace.user_name import user_at_host

if TYPE_CHECKING:
    from tailrace.subscription.worker.worker import Worker

T = TypeVar("T")

DeliveryHandler: TypeAlias = Handler[Any] | BatchHandler[Any]
"""A function or coroutine function of a delivery, or of a list of them."""


class SubscriptionOptions(DeliveryOptions, total=False):
    """The options of `Hub.create_subscription`."""

    topic: Required[str]
    shards: int | None
    retry: Retry
    on_dead_letter: str
    filter: str | None
    start: StartLike
    rq_partitions: int | None
    dlq_partitions: int | None
    uneven: bool
    exist_ok: bool


class Subscription(Unpicklable):
    """An existing subscription: it delivers the messages of one topic, in order per key.

    A message that fails steps aside with its key into the retry queue (RQ), and after its last
    attempt into the dead-letter queue (DLQ), while other keys continue. Threads may share the
    object, and a forked process may use it.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        settings: HubSettings,
        clock: Clock,
        find_topic: Callable[[str], Topic[Any]],
    ) -> None:
        self.name = name
        self.topic = read_definition(backend, name).definition.topic
        """The name of its topic."""
        self._backend = backend
        self._settings = settings
        self._clock = clock
        self._find_topic = find_topic

    def __repr__(self) -> str:
        return f"<Subscription {self.name} of {self._backend.name}>"

    @property
    def definition(self) -> SubscriptionDefinition:
        """The definition as it is stored now."""
        return read_definition(self._backend, self.name).definition

    def describe(self) -> SubscriptionInfo:
        """Return its definition, its workers, and what waits in its queues."""
        return describe(self._backend, self.name)

    def explain(self, key: str | bytes) -> KeyState:
        """Return what holds the messages of a key back, if anything does, and who works on them."""
        return self._read(lambda stored: read_key_state(self._backend, stored, key))

    def group_state(self, key: str | bytes) -> GroupStates:
        """Return the newest and the last consumed message of a key in RQ and in DLQ.

        A key that lags in neither has an empty state.
        """
        return self._read(lambda stored: read_group_state(self._backend, stored, key))

    def message(self, position: Position | str) -> MessagePlace:
        """Return where a message is: in which queue, with its attempts, or that it is acknowledged.

        The position is that in the topic, in RQ or in DLQ.
        """
        where = Position.parse(position) if isinstance(position, str) else position
        return self._read(lambda stored: read_message_place(self._backend, stored, where))

    def _read(self, read: Callable[[StoredSubscription], T]) -> T:
        """Read something of the subscription while workers change it."""
        backend, name = self._backend, self.name
        return read_again_if_deleted(backend, name, lambda: read(read_subscription(backend, name)))

    @property
    def dead_letters(self) -> DeadLetters:
        """Its dead letters: to list, show, redeliver and discard."""
        return DeadLetters(self._backend, self.name, self._clock)

    def start(
        self,
        handler: DeliveryHandler | None = None,
        *,
        type: Any = None,
        id: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | str | None = None,
        filter: Callable[[Message[Any]], bool] | None = None,
        drain_timeout: timedelta | str = DRAIN_TIMEOUT,
        guarantee: str = "at-least-once",
        batch: bool = False,
        batch_size: int | None = None,
        effects: Effects | None = None,
    ) -> Worker:
        """Start a worker in this process, and return it at once.

        It calls the handler, a function or a coroutine function, with a `Delivery` of each message,
        at most `concurrency` at a time and one of each key. Returning is success; `Reject` makes
        the message a dead letter; `RetryLater` sets the delay of its next attempt; any other error,
        and a call that takes longer than `timeout`, 30 s by default, means another attempt. Without
        a handler it posts the messages to the endpoint of the subscription. Any number of workers,
        in any processes, share the messages. Messages for which `filter` is False are acknowledged
        and not delivered. Values are decoded to `type`, or else to the type in the annotation
        ``Delivery[TYPE]`` of the handler; without any they have the type that they were pushed
        with. A worker with an `id` takes over from an earlier one with the same id, which ends with
        `Fenced`.

        `guarantee` is ``"at-least-once"``, ``"exactly-once"``, so that what the handler pushes by
        ``delivery.tx`` is stored together with the acknowledgement, or ``"at-most-once"``. With
        `effects`, a `SqlEffects`, the handler writes to a database by ``delivery.connection``, once
        for each message, and has no ``delivery.tx``. With `batch` the handler is called with a list
        of at most `batch_size` deliveries, in order; if the call fails, each of them is called by
        itself.

        Raises `InvalidValue` for a handler that cannot be called with one delivery, and
        `TopicTypeMismatch` if the type does not agree with that of the topic.
        """
        # Imported here: only workers need sockets and threads.
        from tailrace.subscription.worker.worker import start_worker

        stored = read_subscription(self._backend, self.name)
        of_handlers = OptionsOfHandlers(type, timeout, guarantee, batch, effects)
        endpoint = stored.definition.endpoint
        check_called(self.name, endpoint, handler, of_handlers)
        kind = type if type is not None or handler is None else _type_of(handler)
        View(self._backend, self.topic, stored.main).agree_on(ValueType.of(kind))
        options = WorkerOptions.of(
            id=id,
            concurrency=concurrency,
            timeout=timeout or (TIMEOUT if endpoint is None else endpoint.timeout),
            filter=filter,
            drain_timeout=drain_timeout,
            guarantee=guarantee,
            batch=batch,
            batch_size=batch_size,
            effects=effects,
        )
        if handler is not None:
            self._check_use(handler, type, options)
        return start_worker(
            self._backend,
            self.name,
            handler,
            options,
            decode=Payload(kind, stored.main.definition.content_type).decode_message,
            settings=self._settings,
            find_topic=self._find_topic,
        )

    def _check_use(self, handler: DeliveryHandler, type: Any, options: WorkerOptions) -> None:
        """Check that a handler fits the options of its worker."""
        what, effects = _named(handler), options.effects
        if type is None:
            check_batch(handler, options.batch, {}, what)
        if effects is not None:
            if awaits(handler):
                raise InvalidValue(what, handler, "a function that is not async, with effects")
            effects.check(self._backend.name)

    def run(self, handler: DeliveryHandler | None = None, **options: Unpack[StartOptions]) -> None:
        """Work in this thread until the worker is stopped. The `options` are those of `start`."""
        with self.start(handler, **options) as worker:
            worker.wait()

    def pause(self, reason: str) -> bool:
        """Pause the subscription: its workers call no handler until `resume`.

        Returns False and changes nothing if it is paused already. The reason must not be empty.
        """
        text = check_reason(reason)
        now_ms = self._clock.now_ms()
        paused = pause(self._backend, self.name, text, user_at_host(), now_ms)
        if paused:
            self._record("pause", text)
        return paused

    def resume(self) -> bool:
        """End a pause. Returns False and changes nothing if the subscription is not paused."""
        ended = resume(self._backend, self.name)
        if ended is not None:
            self._record("resume", f"it was paused: {ended.reason}")
        return ended is not None

    def update(
        self,
        *,
        retry: Retry | None = None,
        filter: str | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        """Change the retry policy, the filter, the load control or the endpoint; None leaves one as
        it is.

        An empty filter or secret removes it, and ``"off"`` a part of load control. Running workers
        follow, except that a longer timeout holds from their next start.
        """
        load, endpoint = delivery_changes(options)
        update_settings(
            self._backend, self.name, retry=retry, filter=filter, load=load, endpoint=endpoint
        )

    def plan_shards(self, shards: int, *, uneven: bool = False) -> ShardsPlan:
        """Return what `change_shards` would do. Raises the same errors."""
        stored = read_subscription(self._backend, self.name)
        return plan_shards(self._backend, stored, shards, uneven=uneven)

    def change_shards(
        self, shards: int, *, uneven: bool = False, wait: timedelta | str | None = None
    ) -> bool:
        """Change the number of shards while messages flow. Every key stays in order.

        Workers finish the calls in flight and continue as owners of the new shards. The change may
        have to wait until older storage topics of the topic are finished, see `plan_shards`:
        meanwhile the present shards work on. This process takes the steps that are possible now and
        within `wait`, and running workers take the others. Returns True once the change is done,
        False if it is still under way. The present number takes back a change that has not begun.
        Raises `InvalidValue` for a number that does not divide the partitions of the topic, unless
        `uneven`, and `Busy` while another change is under way.
        """
        before, now_ms = self.definition.shards, self._clock.now_ms()
        timeout_s = 0.0 if wait is None else parse_duration(wait, "wait").total_seconds()
        if ask_for_shards(
            self._backend, self.name, shards, uneven=uneven, by=user_at_host(), now_ms=now_ms
        ):
            self._record("reshard", f"{format_amount(before, 'shard')} -> {shards}")
        return await_generation(self._backend, self.name, SystemClock(), timeout_s)

    def plan_reset(self, to: StartLike, *, queue: str = "mq", reshard: bool = False) -> ResetPlan:
        """Plan what `reset` would do. Changes nothing."""
        _check_reshard(reshard)
        return plan_reset(self._backend, self.name, to, queue=queue)

    def reset(
        self, to: StartLike, *, queue: str = "mq", reshard: bool = False, reason: str = ""
    ) -> ResetPlan:
        """Reset the subscription to other offsets, and return the plan that was executed.

        `to` is ``"start"``, ``"end"``, an aware datetime, a position or several, or offsets by
        partition. A position moves its partition and those that follow it; everything else moves
        the whole topic, back or forward. Messages that are read again are delivered in order, with
        an id such as ``orders/1.7@42+r1``, and a key that waits in RQ or DLQ gets them behind
        those. With the queue ``"rq"`` or ``"dlq"`` messages there are passed over: they are not
        delivered any more, and their keys continue.

        Workers may run: they continue from the new offsets. `InvalidValue` if keys would not be
        delivered in order, and for a move back in RQ or DLQ; `OutOfRange` for a position that does
        not exist. `reshard` is not available yet.
        """
        _check_reshard(reshard)
        operator = Operator(user_at_host(), os.getpid(), "subscription reset", reason)
        now_ms = self._clock.now_ms()
        plan = reset(self._backend, self.name, to, queue=queue, operator=operator, now_ms=now_ms)
        if plan.partitions:
            self._record("reset", f"{plan.queue} to {plan.target}")
        return plan

    def delete(self) -> None:
        """Delete the subscription with its RQ, its DLQ and its progress. The topic stays.

        Its workers end with `UnknownSubscription`.
        """
        delete_subscription(self._backend, self.name)

    def _record(self, what: str, why: str) -> None:
        group = worker_group(self.name)
        record_change(self._backend, group, what, why, self._clock.now_ms())


def _type_of(handler: DeliveryHandler) -> Any:
    """Return the type of the payloads of a handler, which is checked."""
    check_handler(handler, _named(handler))
    return payload_type(handler, {}, _named(handler))


def _named(handler: DeliveryHandler) -> str:
    return f"handler {label_of(handler)}"


def _check_reshard(reshard: bool) -> None:
    if reshard:
        raise InvalidValue(
            "reshard", reshard, "False: a reset does not change the number of shards yet"
        )
