"""Calls of an endpoint instead of a handler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Final, NamedTuple

from tailrace.clock import Clock
from tailrace.delivery.outcome import OutcomeKind
from tailrace.errors import Error
from tailrace.subscription.endpoint.event_headers import EventHeaders
from tailrace.subscription.store.definition import StoredSubscription, SubscriptionDefinition
from tailrace.subscription.worker.calls import Call, CallFailed, CallRunner, CallSource
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.runners.loop_calls import LoopCalls

EXTRA_S: Final = 2.0
"""How much longer than the timeout of the endpoint a call may take: the request ends before it."""


class CalledHandler(NamedTuple):
    """What calls the handler of a worker, and what is told of each definition that is read."""

    runner: Callable[[CallSource], CallRunner]
    defined: Callable[[SubscriptionDefinition], None] = lambda definition: None


def endpoint_calls(
    stored: StoredSubscription, options: WorkerOptions, clock: Clock
) -> CalledHandler:
    """Return what delivers to the endpoint of a subscription. Raises `Error` if aiohttp is not
    installed, and `InvalidValue` if the secret cannot be read."""
    definition, main = stored.definition, stored.main.definition
    assert definition.endpoint is not None, "a subscription without a handler has an endpoint"
    deliveries = _deliveries_module().EndpointDeliveries(
        definition.endpoint,
        definition.retry,
        EventHeaders(definition.topic, main.identity, main.content_type),
        connections=options.concurrency,
        timeout_s=options.timeout.total_seconds(),
        clock=clock,
    )

    async def invoke(call: Call) -> None:
        (delivery,), (turn,) = call.deliveries, call.turns
        outcome = await deliveries.deliver(
            delivery, turn.known_origin, call.owned.epoch, turn.delays
        )
        if outcome.kind is not OutcomeKind.SUCCESS:
            raise CallFailed(outcome)

    def defined(definition: SubscriptionDefinition) -> None:
        if definition.endpoint is not None:
            deliveries.follow(definition.endpoint, definition.retry)

    runner = partial(
        LoopCalls,
        stored.name,
        invoke,
        concurrency=options.concurrency,
        timeout_s=options.timeout.total_seconds() + EXTRA_S,
        monotonic=clock.monotonic,
        finish=deliveries.close,
    )
    return CalledHandler(runner, defined)


def _deliveries_module() -> ModuleType:
    """Import what needs aiohttp late: only workers of endpoints need it."""
    try:
        from tailrace.subscription.endpoint import deliveries
    except ModuleNotFoundError as error:
        if error.name not in ("aiohttp", "yarl"):
            raise
        raise Error(
            "to deliver to an endpoint needs aiohttp, which is not installed",
            "install it: pip install 'tailrace[http]'",
        ) from None
    return deliveries
