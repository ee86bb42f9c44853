"""The endpoint of a subscription in the Python API."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypedDict

from tailrace.delivery.load_control import LoadChange, LoadOptions, parse_load
from tailrace.errors import InvalidValue
from tailrace.subscription.endpoint.definition import Endpoint, EndpointChange
from tailrace.subscription.worker.guarantee import Guarantee

_INSTEAD: Final = "its workers post the messages: call start() or run() without a handler"
_OF_ENDPOINT: Final = (
    "change it for all workers: Subscription.update, or tailrace subscription update"
)


class EndpointOptions(TypedDict, total=False):
    """The options of an endpoint: `endpoint` is its URL.

    A request that takes longer than `timeout`, 30 s by default, has failed. `secret` signs
    deliveries as Standard Webhooks says: ``whsec_…``, which is stored in the hub, or ``file:PATH``,
    which each worker reads. Addresses that are not public are refused without `allow_private`.
    `retry_statuses` are further HTTP statuses, 300 to 499, that are retried.
    """

    endpoint: str | None
    timeout: timedelta | str | None
    secret: str | None
    allow_private: bool | None
    retry_statuses: Collection[int] | None


class DeliveryOptions(EndpointOptions, LoadOptions, total=False):
    """The options of how a subscription delivers: its endpoint, and its load control."""


def delivery_changes(options: DeliveryOptions) -> tuple[LoadChange, EndpointChange]:
    """Return the options that are given. `InvalidValue` names one of load control that is not
    valid; endpoints are checked when they are made."""
    load: dict[str, Any] = dict(options)
    endpoint = EndpointChange(
        load.pop("endpoint", None),
        load.pop("timeout", None),
        load.pop("secret", None),
        load.pop("allow_private", None),
        load.pop("retry_statuses", None),
    )
    return parse_load(**load), endpoint


class OptionsOfHandlers(NamedTuple):
    """Options of a worker that only handlers have, as they are given."""

    type: Any
    timeout: timedelta | str | None
    guarantee: str
    batch: bool
    effects: Any

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not the defaults."""
        plain = OptionsOfHandlers(None, None, Guarantee.AT_LEAST_ONCE.value, False, None)
        named = zip(self._fields, self, plain, strict=True)
        return {name: value for name, value, default in named if value != default}


def check_called(
    name: str, endpoint: Endpoint | None, handler: object, options: OptionsOfHandlers
) -> None:
    """Raise `InvalidValue` if a subscription with an endpoint is started with a handler, or with an
    option that only handlers have; and if one without an endpoint has no handler."""
    if endpoint is None:
        if handler is None:
            problem = f"subscription {name} has no endpoint, so its workers call a handler"
            remedy = f"start(handler), or tailrace subscription run {name} MODULE:FUNCTION"
            raise InvalidValue("handler", None, "", remedy, problem=problem)
        return
    if handler is not None:
        problem = f"subscription {name} delivers to {endpoint.url}, not to a handler"
        raise InvalidValue("handler", handler, "", _INSTEAD, problem=problem)
    for option, value in options.given.items():
        remedy = _OF_ENDPOINT if option == "timeout" else "start it without"
        problem = f"{option} is an option of handlers, and {name} delivers to {endpoint.url}"
        raise InvalidValue(option, value, "", remedy, problem=problem)
