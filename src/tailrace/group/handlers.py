"""Handlers: called with each delivery of a consumer, here or in a thread of their own."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar

from tailrace.errors import DeliveryFailed, HubClosed, InvalidValue
from tailrace.group.delivery import Delivery

T = TypeVar("T")

Handler: TypeAlias = Callable[[Delivery[T]], object]
OnFailed: TypeAlias = Callable[[DeliveryFailed], object]

_AGAIN_S: Final = 0.1
_AGAIN_MAX_S: Final = 10.0

_log: Final = logging.getLogger("tailrace.group")


def check_handlers(handler: object, on_failed: object) -> None:
    """`InvalidValue` for what cannot be called with a delivery, or would have to be awaited."""
    if not callable(handler) or inspect.iscoroutinefunction(handler):
        valid = "a function that takes a delivery; with asyncio, async for over this consumer"
        raise InvalidValue("handler", handler, valid)
    if on_failed is not None and (
        not callable(on_failed) or inspect.iscoroutinefunction(on_failed)
    ):
        raise InvalidValue(
            "on_failed", on_failed, "a function that takes a DeliveryFailed, or None"
        )


def call_each(
    deliveries: Iterable[Delivery[T]], handler: Handler[T], on_failed: OnFailed | None
) -> None:
    """Call the handler with each delivery until there are no more.

    When it raises, the message is given back, for a time that grows with the attempt. What used up
    its attempts goes to `on_failed`, or is raised where that is None: from what the handler raised.
    """
    tried, trouble = "", Exception()
    while True:
        try:
            for delivery in deliveries:
                try:
                    handler(delivery)
                except Exception as error:
                    tried, trouble = delivery.id, error
                    _log.warning("%r failed", delivery, exc_info=True)
                    _give_back(delivery)
            return
        except DeliveryFailed as failed:
            failed.__cause__ = trouble if failed.position == tried else None
            if on_failed is None:
                raise
            on_failed(failed)


def _give_back(delivery: Delivery[T]) -> None:
    if not delivery.settled:
        wait_s = min(_AGAIN_S * 2 ** (delivery.attempt - 1), _AGAIN_MAX_S)
        delivery.nack(timedelta(seconds=wait_s))


class HandlerThread:
    """A thread that does one thing, and what ended that early: logged, and raised once."""

    def __init__(self, group: str, act: Callable[[], None]) -> None:
        self._group = group
        self._act = act
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"tailrace {group}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it goes on."""
        return self._thread.is_alive()

    @property
    def current(self) -> bool:
        """Whether it is the one that asks."""
        return self._thread is threading.current_thread()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it came in time. Raises what ended it, to whoever is first."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        return True

    def _run(self) -> None:
        try:
            self._act()
        except HubClosed as error:
            _log.warning(
                "a consumer of %s has ended, for want of a shutdown: %s", self._group, error
            )
            self._trouble = error
        except BaseException as error:
            _log.error("a consumer of %s has ended", self._group, exc_info=error)
            self._trouble = error
