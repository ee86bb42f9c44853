"""What an app declares: subscriptions with their handlers, and topics. Values, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from tailrace.amount import is_whole
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.load_control import LoadControl, LoadOptions, parse_load
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue
from tailrace.group.consumer.handlers import Handler
from tailrace.group.store.start import Start, StartLike, parse_start
from tailrace.hub.handler import check_handler, label_of, payload_type
from tailrace.message import Message
from tailrace.payload import Payload, ValueType
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.topic.composite import check_name, check_new_name
from tailrace.topic.internal_topics import check_new_topic
from tailrace.topic.lineage import check_count
from tailrace.topic.order_by import OrderBy

FilterLike: TypeAlias = str | Callable[[Message[Any]], bool] | None
DeadLetterPolicy: TypeAlias = Literal["block", "continue"]


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic that an app creates at its start if there is none."""

    name: str
    type: Any
    partitions: int
    order_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSubscription:
    """A subscription and its handler.

    `type` is the type of the payloads; None if they may be of any type. `filter` is an expression
    that is stored with the subscription, `accepts` a function that each worker calls: a message is
    delivered if both are None or true.
    """

    name: str
    topic: str
    handler: Handler[Any]
    type: Any
    retry: Retry
    on_dead_letter: OnDeadLetter
    shards: int | None
    start: Start
    filter: str | None
    accepts: Callable[[Message[Any]], bool] | None
    concurrency: int
    timeout: timedelta
    load: LoadControl

    @property
    def label(self) -> str:
        """The name of the handler, with its module."""
        return label_of(self.handler)


def declared_topic(name: str, type: Any, partitions: int, order_by: str | None) -> DeclaredTopic:
    """Return a topic; `InvalidName` or `InvalidValue` if it cannot be created."""
    check_new_topic(name)
    check_count(partitions, any_count=False)
    Payload(type)
    if order_by is not None:
        OrderBy(order_by).check_type(ValueType.of(type))
    return DeclaredTopic(name, type, partitions, order_by)


def declared_subscription(
    name: str,
    handler: Handler[Any],
    *,
    topic: str,
    retry: Retry,
    concurrency: int,
    timeout: timedelta | str,
    filter: FilterLike,
    on_dead_letter: str,
    shards: int | None,
    start: StartLike,
    load: LoadOptions,
    names: Mapping[str, Any],
    kind: Literal["subscription", "queue"] = "subscription",
) -> DeclaredSubscription:
    """Return a subscription; `InvalidName` or `InvalidValue`, which names the handler, if a value
    is not valid.

    `names` are the local names where it is declared, which annotations may use. `kind` is what
    errors call it.
    """
    check_new_name(kind, name)
    of = f"of {kind} {name!r} ({label_of(handler)})"
    check_handler(handler, f"the handler {of}")
    check_name("topic", topic)
    if shards is not None and not (is_whole(shards) and shards >= 1):
        raise InvalidValue(f"shards {of}", shards, "a whole number, 1 or more")
    if not isinstance(retry, Retry):
        raise InvalidValue(f"retry {of}", retry, "a tailrace.Retry, such as Retry(attempts=8)")
    expression = filter if isinstance(filter, str) else None
    accepts = None if isinstance(filter, str) else filter
    _check_expression(expression, of)
    options = _worker_options(concurrency, timeout, accepts, of)
    policies = [policy.value for policy in OnDeadLetter]
    if on_dead_letter not in policies:
        raise InvalidValue(f"on_dead_letter {of}", on_dead_letter, " or ".join(policies))
    return DeclaredSubscription(
        name=name,
        topic=topic,
        handler=handler,
        type=payload_type(handler, names, f"the handler {of}"),
        retry=retry,
        on_dead_letter=OnDeadLetter(on_dead_letter),
        shards=shards,
        start=parse_start(start, f"start {of}"),
        filter=expression,
        accepts=accepts,
        concurrency=options.concurrency,
        timeout=options.timeout,
        load=_load(load, shards, of),
    )


def _load(given: LoadOptions, shards: int | None, of: str) -> LoadControl:
    """Return the load control; `InvalidValue`, which names the handler."""
    try:
        load = parse_load(**given).applied(LoadControl())
        load.check(shards or 1)
    except InvalidValue as error:
        raise InvalidValue(f"{error.what} {of}", error.value, error.valid) from error
    return load


def _worker_options(
    concurrency: int,
    timeout: timedelta | str,
    accepts: Callable[[Message[Any]], bool] | None,
    of: str,
) -> WorkerOptions:
    """Return the options that workers will have; `InvalidValue`, which names the handler."""
    try:
        return WorkerOptions.of(concurrency=concurrency, timeout=timeout, filter=accepts)
    except InvalidValue as error:
        valid = error.valid
        if error.what == "filter":
            valid = f"an expression, {valid}, or None"
        raise InvalidValue(f"{error.what} {of}", error.value, valid, error.remedy) from error


def _check_expression(filter: str | None, of: str) -> None:
    if filter is None:
        return
    try:
        MessageFilter(filter)
    except InvalidValue as error:
        problem = f"the filter {of} is not valid: {error}"
        raise InvalidValue(f"filter {of}", filter, "", problem=problem) from error
