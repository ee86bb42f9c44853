"""What an app declares for a queue: its settings, and how its handler is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from tailrace.amount import is_whole
from tailrace.app.declaration import DeclaredSubscription, FilterLike, declared_subscription
from tailrace.delivery.load_control import LoadOptions
from tailrace.delivery.retry import Retry
from tailrace.errors import InvalidValue
from tailrace.group.consumer.handlers import awaits
from tailrace.hub.handler import check_batch, label_of
from tailrace.subscription.worker.effects import Effects
from tailrace.subscription.worker.guarantee import Guarantee
from tailrace.subscription.worker.options import BATCH_MAX, EFFECTS_VALID
from tailrace.topic.internal_topics import check_new_topic
from tailrace.topic.lineage import check_count

GuaranteeName: TypeAlias = Literal["at-least-once", "exactly-once", "at-most-once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue(DeclaredSubscription):
    """A queue and its handler. `topic` is the name of the queue.

    With `batch` the handler is called with lists of deliveries, at most `batch_size`. `effects` is
    the database that it writes to.
    """

    guarantee: Guarantee
    batch: bool
    batch_size: int | None
    effects: Effects | None


def declared_queue(
    name: str,
    handler: Callable[..., object],
    *,
    guarantee: str,
    shards: int | None,
    retry: Retry,
    concurrency: int,
    batch: bool,
    batch_size: int | None,
    effects: Effects | None,
    timeout: timedelta | str,
    filter: FilterLike,
    on_dead_letter: str,
    load: LoadOptions,
    names: Mapping[str, Any],
) -> DeclaredQueue:
    """Return a queue; `InvalidName` or `InvalidValue`, which names the handler, if a value is not
    valid.

    `names` are the local names where it is declared, which annotations may use.
    """
    consumer = declared_subscription(
        name,
        handler,
        topic=name,
        retry=retry,
        concurrency=concurrency,
        timeout=timeout,
        filter=filter,
        on_dead_letter=on_dead_letter,
        shards=shards,
        start="earliest",
        load=load,
        names=names,
        kind="queue",
    )
    of = f"of queue {name!r} ({label_of(handler)})"
    check_new_topic(name)
    if shards is not None:
        check_count(shards, any_count=False)
    chosen = _guarantee(guarantee, effects, of)
    _check_batch(handler, batch, batch_size, names, of)
    if effects is not None and awaits(handler):
        what = f"the handler {of}"
        problem = f"{what} has effects and is a coroutine function"
        raise InvalidValue(what, handler, "a function that is not async", problem=problem)
    values = {each.name: getattr(consumer, each.name) for each in fields(consumer)}
    return DeclaredQueue(
        **values, guarantee=chosen, batch=batch, batch_size=batch_size, effects=effects
    )


def _guarantee(text: str, effects: Effects | None, of: str) -> Guarantee:
    try:
        chosen = Guarantee.parse(text)
    except InvalidValue as error:
        raise InvalidValue(f"guarantee {of}", text, error.valid) from None
    if effects is not None and not hasattr(effects, "take_over"):
        raise InvalidValue(f"effects {of}", effects, EFFECTS_VALID)
    if effects is not None and chosen is not Guarantee.EXACTLY_ONCE:
        raise InvalidValue(f"guarantee {of}", text, f"{Guarantee.EXACTLY_ONCE.value} with effects")
    return chosen


def _check_batch(
    handler: Callable[..., object],
    batch: bool,
    batch_size: int | None,
    names: Mapping[str, Any],
    of: str,
) -> None:
    """Check that a handler of batches takes lists, and another one single deliveries, as far as its
    annotation says."""
    if batch_size is not None and not (is_whole(batch_size) and 1 <= batch_size <= BATCH_MAX):
        raise InvalidValue(f"batch_size {of}", batch_size, f"1 to {BATCH_MAX:,}")
    check_batch(handler, batch, names, f"the handler {of}")
