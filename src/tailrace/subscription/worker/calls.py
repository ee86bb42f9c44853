"""The contract between the session of a worker and what calls its handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from tailrace.delivery.delivery import Delivery, Outputs
from tailrace.delivery.outcome import FILTERED, LOST, SUCCESS, CallOutcome, OutcomeKind, outcome_of
from tailrace.errors import DecodeError
from tailrace.message import Message
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.worker.shard_io import StoredShard

Handler: TypeAlias = Callable[..., object]
"""A function of a delivery; or of a list of them, if it takes several messages at once."""


class CallEnd:
    """Decides between the commit of a call's effects and giving the call up. Any thread may use
    it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._commits = self._awaited = self._given_up = False

    def commit(self) -> bool:
        """Begin the commit. False if the call was given up: its message counts as failed."""
        with self._mutex:
            self._commits = not self._given_up
            return self._commits

    def give_up(self) -> bool:
        """Give the call up. False, once, if its commit has begun: that is awaited as long again."""
        with self._mutex:
            if self._commits and not self._awaited:
                self._awaited = True
                return False
            self._given_up = True
            return True


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """The messages to call the handler with, and the shard that they belong to.

    It is one message, unless the handler takes several at once: then it has `batch`.
    """

    owned: StoredShard
    turns: tuple[Turn, ...]
    deliveries: tuple[Delivery[Any], ...]
    batch: bool = False
    end: CallEnd = field(default_factory=CallEnd)

    @property
    def argument(self) -> Delivery[Any] | list[Delivery[Any]]:
        """What the handler is called with."""
        return list(self.deliveries) if self.batch else self.deliveries[0]

    @property
    def names(self) -> list[bytes | Origin]:
        """The keys of the messages; the origins of those without a key."""
        return [key or origin for key, origin in zip(self._keys, self.origins, strict=True)]

    @property
    def transactions(self) -> Iterable[Outputs]:
        """The transactions of the deliveries; those of a slice share one."""
        several = self.deliveries[:1] if self.turns[0].slice is not None else self.deliveries
        return [delivery.tx for delivery in several]

    @property
    def origins(self) -> list[Origin]:
        """The origins of the messages."""
        return [origin for turn in self.turns for origin in turn.origins]

    @property
    def _keys(self) -> list[bytes | None]:
        return [delivery.key_bytes for delivery in self.deliveries]

    @property
    def label(self) -> str:
        """The message, or the first of several, for people."""
        more = len(self.deliveries) - 1
        return self.deliveries[0].id + (f" and {more:,} more" if more else "")


class CallSource(Protocol):
    """The calls of a worker. Any thread may use it; each call ends exactly once."""

    def next_call(self) -> Call | None:
        """Return a message to call now; None if there is none. Never blocks."""

    def ended(self, call: Call, outcome: CallOutcome) -> None:
        """Record the outcome of a call."""

    def took(self, seconds: float) -> None:
        """Record how long a call has taken that ended, or that was given up."""

    def runs_late(self, calls: Mapping[str, int]) -> None:
        """Record how many calls were given up and still run, by the name of their shard."""

    def fail(self, error: BaseException) -> None:
        """End the worker with an error that belongs to no call."""


class CallRunner(Protocol):
    """Calls the handler of a worker. Any thread may use it."""

    def start(self) -> None:
        """Start the threads."""

    def wake(self) -> None:
        """Take the calls that are possible now. Never blocks."""

    def expire(self) -> float:
        """Give up the calls that take too long. Returns when to call this again."""

    def stop(self) -> None:
        """Take no more calls, and end the threads whose calls have ended. Never blocks."""


class CallLost(Exception):
    """It is not known what a call has stored, or its shard has another owner."""


class CallFailed(Exception):
    """Raised by a call that knows its outcome, which is no success."""

    def __init__(self, outcome: CallOutcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


def result_of(call: Call, error: BaseException | None) -> CallOutcome:
    """Return the outcome of a call that raised this error, or None.

    A payload that cannot be decoded is rejected: a further attempt would fail again.
    """
    if isinstance(error, CallLost):
        return LOST
    if isinstance(error, CallFailed):
        return error.outcome
    if isinstance(error, DecodeError) and error.where == call.deliveries[0].id:
        return CallOutcome(OutcomeKind.REJECT, outcome_of(error).error)
    return outcome_of(error)


def outcome_without_call(
    call: Call, passes: Callable[[Message[Any]], bool] | None
) -> CallOutcome | None:
    """Return the outcome of a message that does not pass the filter of its worker, or for which the
    filter fails, or whose effects are stored; None if the handler is to be called. The call is one
    of a single message.

    The filter decides before every call: the attempts before may have failed in the filter itself.
    """
    effects = call.owned.effects
    if effects is not None and effects.stored(call.turns[0].known_origin):
        return SUCCESS
    if passes is None:
        return None
    try:
        answer: object = passes(call.deliveries[0])
        if not isinstance(answer, bool):
            raise TypeError(f"the filter returned {answer!r}, not True or False")
    except BaseException as error:
        return result_of(call, error)
    return None if answer else FILTERED


def joined_calls(calls: Sequence[Call]) -> Call:
    """Return one call with the messages of several, of one shard."""
    if len(calls) == 1:
        return calls[0]
    turns = tuple(turn for each in calls for turn in each.turns)
    deliveries = tuple(delivery for each in calls for delivery in each.deliveries)
    return Call(calls[0].owned, turns, deliveries, calls[0].batch)


def timed_out(timeout_s: float) -> CallOutcome:
    """Return the outcome of a call that took longer than this."""
    return CallOutcome(OutcomeKind.RETRY, f"timed out after {timeout_s:g} s")
