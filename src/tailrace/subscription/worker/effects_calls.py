"""Calls of a handler whose effects are stored in a database, together with the messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tailrace.errors import EffectsUnavailable, Error, Fenced, OutcomeUnknown
from tailrace.subscription.worker.calls import Call, CallLost, Handler


def plain_call(handler: Handler) -> Callable[[Call], Any]:
    """Return what calls a handler."""
    return lambda call: handler(call.argument)


def effects_call(handler: Handler) -> Callable[[Call], Any]:
    """Return what calls a handler within a transaction of its database.

    It raises what the handler raises, with nothing stored, and `CallLost` if it is not known what
    is stored, if the shard has another owner, or if the database does not answer. So an outage of
    the database uses up no attempts: the shard waits until it can be taken over again.
    """

    def invoke(call: Call) -> None:
        unit = call.owned.effects
        assert unit is not None, "a shard with effects has taken over its unit"
        try:
            transaction = unit.begin()
        except EffectsUnavailable as error:
            raise CallLost from error
        try:
            for delivery in call.deliveries:
                delivery.bind(connection=transaction.connection)
            result = handler(call.argument)
            if inspect.isawaitable(result):
                raise Error(
                    "a handler with effects returned an awaitable, which nothing awaits",
                    "use a function that is not async",
                )
            if not call.end.commit():
                raise Error(
                    "the call took longer than its timeout, so its effects are not stored",
                    "let the handler be shorter, or start it with a longer timeout",
                )
        except BaseException:
            transaction.rollback()
            raise
        try:
            transaction.commit(call.origins)
        except (EffectsUnavailable, Fenced, OutcomeUnknown) as error:
            raise CallLost from error

    return invoke
