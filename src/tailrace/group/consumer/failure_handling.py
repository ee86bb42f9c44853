"""The actions after an error of a handler, after the last attempt of a message, after an outage.

A message that failed is delivered again after a delay that grows; only its key waits. An outage of
the hub is waited out. An error that no retry can help ends the run.
"""

from __future__ import annotations

import errno
import inspect
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import OutcomeKind, outcome_of
from tailrace.delivery.retry import GROUP_FIRST, GROUP_MAX, Retry
from tailrace.error_text import describe_error
from tailrace.errors import DeliveryFailed, Error, InvalidValue
from tailrace.group.outage import Outage
from tailrace.group.session.session import Session

OnFailed: TypeAlias = Literal["stop", "skip", "dead-letter"] | Callable[[DeliveryFailed], object]

_TRANSIENT_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN)

_log: Final = logging.getLogger("tailrace.group")


class FailedAction(Enum):
    """The action for a message that failed its last attempt."""

    STOP = "stop"
    """Raise `DeliveryFailed`: the run ends."""
    SKIP = "skip"
    """Log the message and acknowledge it."""
    DEAD_LETTER = "dead-letter"
    """Store the message as a dead letter and acknowledge it, in one commit."""


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """The options of `Consumer.run`, checked."""

    retry: Retry
    on_failed: FailedAction | Callable[[DeliveryFailed], object]

    @classmethod
    def of(
        cls,
        handler: object,
        retry: Retry | None,
        on_failed: OnFailed | None,
        *,
        attempts: int | None,
        default_attempts: int,
    ) -> HandlerOptions:
        """Make options from the arguments of a user.

        Without `retry`, the limit is `attempts`. If that is None too, there is no limit, or
        `default_attempts` if `on_failed` says what to do after the last one.
        """
        if not callable(handler) or not _takes_one_argument(handler):
            raise InvalidValue("handler", handler, "a function that takes a delivery")
        action = _action(on_failed)
        if retry is None:
            if attempts is None and on_failed is not None:
                attempts = default_attempts
            return cls(Retry(attempts, first=GROUP_FIRST, max=GROUP_MAX), action)
        if not isinstance(retry, Retry):
            raise InvalidValue("retry", retry, "a tailrace.Retry, or None")
        return cls(retry, action)


def _action(on_failed: object) -> FailedAction | Callable[[DeliveryFailed], object]:
    if on_failed is None:
        return FailedAction.STOP
    if callable(on_failed) and _takes_one_argument(on_failed):
        return on_failed
    try:
        return FailedAction(on_failed)
    except ValueError:
        valid = "'stop', 'skip', 'dead-letter' or a function that takes a DeliveryFailed"
        raise InvalidValue("on_failed", on_failed, valid) from None


def _takes_one_argument(function: Callable[..., object]) -> bool:
    """True if a function can be called with one argument, as far as that can be known."""
    try:
        signature = inspect.signature(function)
    except Exception:  # Some functions of C have none, and annotations may not be evaluable.
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


class FailureHandling:
    """The failures of one run. For one thread at a time."""

    def __init__(self, session: Session, options: HandlerOptions) -> None:
        self._session = session
        self._retry = options.retry
        self._on_failed = options.on_failed
        self._tried = ""
        self._raised: BaseException | None = None
        self._outage = Outage(_log, f"consuming in group {session.group}")
        self._outage_retry = Retry(first=GROUP_FIRST, max=GROUP_MAX)
        self._outages = 0
        # Those who resolve a message themselves record it too, together with its resolution.
        quiet = options.on_failed in (FailedAction.SKIP, FailedAction.DEAD_LETTER)
        session.begin_handling(options.retry.attempts, records_failures=not quiet)

    @property
    def stopping(self) -> bool:
        """True if the consumer is to end."""
        return self._session.stopping

    def worked(self) -> None:
        """Record that a delivery was handled: an outage of the hub, if there was one, has ended."""
        if self._outages:
            self._outages = 0
            self._outage.worked()

    def attempt_failed(self, delivery: Delivery[Any], error: BaseException) -> None:
        """Have a message delivered again whose handler raised, unless the handler rejected it."""
        self._tried, self._raised = delivery.id, error
        if delivery.resolved:
            _log.warning("%r was resolved, then its handler failed", delivery, exc_info=error)
            return
        outcome = outcome_of(error)
        if outcome.kind is OutcomeKind.REJECT:
            _log.warning("%r was rejected: %s", delivery, outcome.error)
            delivery.reject(outcome.error)
            return
        delay = outcome.delay
        shown = error if delay is None else None  # a handler that asks for a delay has no error
        if delay is None:
            delay = self._retry.delay(delivery.attempt, random.random())
        again = f"next attempt in {delay.total_seconds():.2g} s"
        if delivery.attempt == self._retry.attempts:
            again = "that was its last attempt"
        _log.warning("%r failed: %s", delivery, again, exc_info=shown)
        delivery.nack(delay, reason=outcome.error)

    def resolver_of(self, failed: DeliveryFailed) -> Callable[[DeliveryFailed], object]:
        """Return the function to call with a message that failed its last attempt."""
        failed.__cause__ = self._raised if failed.position == self._tried else None
        match self._on_failed:
            case FailedAction.STOP:
                raise failed
            case FailedAction.SKIP:
                return self._skip
            case FailedAction.DEAD_LETTER:
                return self._dead_letter
            case on_failed:
                return on_failed

    def pause(self, error: Exception) -> None:
        """Wait a while after an outage of the hub, at most until the consumer is to end.

        Raises the error if it is no outage.
        """
        self._session.rest(self.pause_s(error))

    def pause_s(self, error: Exception) -> float:
        """Return how long to wait after an outage. Raises the error if it is no outage."""
        if not _is_outage(error) or self._session.ended:
            raise error
        self._outages += 1
        self._outage.failed(error)
        return self._outage_retry.delay(self._outages, random.random()).total_seconds()

    def _skip(self, failed: DeliveryFailed) -> None:
        failed.delivery.ack()
        _log.error("group %s skipped %s", self._session.group, failed, exc_info=failed.__cause__)

    def _dead_letter(self, failed: DeliveryFailed) -> None:
        cause = failed.__cause__
        error = "nacked" if cause is None else describe_error(cause)
        if self._session.dead_letter(failed.delivery, error):
            group, position = self._session.group, failed.position
            list_them = f"tailrace dlq {group} list"
            _log.error("group %s: %s is a dead letter now: %s", group, position, list_them)


def _is_outage(error: Exception) -> bool:
    """True if the same call may succeed later."""
    if isinstance(error, Error):
        return error.retryable
    return isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS
