"""The options of a worker, checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypedDict

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.group.consumer.handlers import awaits
from tailrace.message import Message
from tailrace.subscription.shard.options import Acking, ShardOptions
from tailrace.subscription.store.definition import SubscriptionDefinition
from tailrace.subscription.worker.defaults import CONCURRENCY, DRAIN_TIMEOUT, TIMEOUT
from tailrace.subscription.worker.effects import Effects
from tailrace.subscription.worker.guarantee import Guarantee
from tailrace.topic.composite import check_name

CONCURRENCY_MAX: Final = 10_000
BATCH_MAX: Final = 10_000
BATCH_SIZE: Final = 100
"""The number of messages in a call that takes several, unless told otherwise."""
EFFECTS_VALID: Final = "a tailrace.SqlEffects, such as SqlEffects('sqlite:///app.db')"


class StartOptions(TypedDict, total=False):
    """The options of `Subscription.start`."""

    type: Any
    id: str | None
    concurrency: int
    timeout: timedelta | str | None
    filter: Callable[[Message[Any]], bool] | None
    drain_timeout: timedelta | str
    guarantee: str
    batch: bool
    batch_size: int | None
    effects: Effects | None


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker.

    `id` is a unique name. `concurrency` bounds the calls at a time. A call that takes longer than
    `timeout` has failed. A worker that ends waits up to `drain_timeout` for its calls. A message
    for which `filter`, which is asked before every call, returns False is acknowledged without one.
    `batch_size` is the number of messages that are prepared at a time; with `batch` the handler is
    called with a list of up to so many. With `effects`, the effects of a handler and the messages
    that it has handled are stored together in a database.
    """

    id: str
    concurrency: int
    timeout: timedelta
    drain_timeout: timedelta
    given_id: str | None = None
    """The id that the user gave; another worker with the same one takes over from this one."""
    filter: Callable[[Message[Any]], bool] | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    batch: bool = False
    batch_size: int | None = None
    effects: Effects | None = None

    @classmethod
    def of(
        cls,
        *,
        id: str | None = None,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | str = TIMEOUT,
        drain_timeout: timedelta | str = DRAIN_TIMEOUT,
        filter: Callable[[Message[Any]], bool] | None = None,
        guarantee: Guarantee | str = Guarantee.AT_LEAST_ONCE,
        batch: bool = False,
        batch_size: int | None = None,
        effects: Effects | None = None,
    ) -> WorkerOptions:
        """Make options from the arguments of a user."""
        if not (is_whole(concurrency) and 1 <= concurrency <= CONCURRENCY_MAX):
            raise InvalidValue("concurrency", concurrency, f"1 to {CONCURRENCY_MAX:,}")
        if batch_size is None and batch:
            batch_size = BATCH_SIZE
        if batch_size is not None and not (is_whole(batch_size) and 1 <= batch_size <= BATCH_MAX):
            raise InvalidValue("batch_size", batch_size, f"1 to {BATCH_MAX:,}")
        if filter is not None and (not callable(filter) or awaits(filter)):
            raise InvalidValue("filter", filter, "a function of a message that is not async")
        longest = parse_duration(timeout, "timeout")
        if not longest:
            raise InvalidValue("timeout", timeout, "more than 0s")
        chosen = Guarantee.parse(guarantee)
        if effects is not None and not hasattr(effects, "take_over"):
            raise InvalidValue("effects", effects, EFFECTS_VALID)
        if effects is not None and chosen is not Guarantee.EXACTLY_ONCE:
            needed = f"{Guarantee.EXACTLY_ONCE.value!r} with effects"
            raise InvalidValue("guarantee", chosen.value, needed)
        token = secrets.token_hex(6)
        return cls(
            token if id is None else f"{check_name('worker', id)}.{token}",
            concurrency,
            longest,
            parse_duration(drain_timeout, "drain_timeout"),
            id,
            filter,
            chosen,
            batch,
            batch_size,
            effects,
        )

    @property
    def transactional(self) -> bool:
        """True if the handler pushes by ``delivery.tx``, in the commit that acknowledges its
        message. A database that stores effects commits before that, so with effects it does not."""
        return self.guarantee is Guarantee.EXACTLY_ONCE and self.effects is None

    def shard_options(self, definition: SubscriptionDefinition) -> ShardOptions:
        """Return the options of the worker's shards."""
        early = self.guarantee is Guarantee.AT_MOST_ONCE
        size = (self.batch_size or 1) if self.batch else 1
        slices = self.batch and not early and self.filter is None
        return ShardOptions(
            definition.retry,
            definition.policy,
            self.concurrency * size,
            acking=Acking.BEFORE_CALL if early else Acking.AFTER_CALL,
            slice_max=size if slices else 0,
            prepared=self.batch_size,
        )
