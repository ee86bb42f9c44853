"""How far a request is: stored in the transactions of its effects.

The table ``subscription-requests/NAME`` has an entry ``UNIT/ID`` for each request that has begun;
for the units of generation 0, ``SHARD/ID``.
An owner continues a request where the last one was: what came of a target is decided once. If every
target has an outcome, the request has ended. Its audit line was appended in the same transaction,
so an owner that finds such an entry has only to remove the request, and then the entry.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import NamedTuple

import msgspec

from tailrace.backend.contract import TableKey
from tailrace.subscription.shard.requests.request import LetterRequest


class TargetOutcome(Enum):
    """What came of a target. The values are stored."""

    OPEN = "."
    DONE = "d"
    """Redelivered with success, or discarded."""
    FAILED = "f"
    """A delivery failed. That letter and those behind it stay."""
    REFUSED = "r"
    """A letter was not the first of its key."""
    GONE = "g"
    """There was no such letter any more."""


class FailedTarget(NamedTuple):
    """An open target whose next letter was called without success, for the request: how many
    times, when the next call is due, and the delay that the handler asked for, if it did."""

    target: int
    failures: int
    due_ms: int
    delay_ms: int = 0


class RequestState(msgspec.Struct, frozen=True):
    """The outcomes of a request's targets, in order, and the number of letters that were
    redelivered or discarded. `failed` are open targets that wait for another call."""

    outcomes: str
    letters: int = 0
    failed: tuple[FailedTarget, ...] = ()

    @property
    def ended(self) -> bool:
        """True if every target has an outcome."""
        return TargetOutcome.OPEN.value not in self.outcomes

    def counts(self) -> dict[TargetOutcome, int]:
        """Return the number of targets with each outcome, where there is any."""
        found = Counter(self.outcomes)
        return {each: found[each.value] for each in TargetOutcome if found[each.value]}


class EndedRequest(NamedTuple):
    """A request that ends with a commit, and what came of it."""

    request: LetterRequest
    state: RequestState


def states_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-requests/{subscription}"


def states_prefix(unit: str) -> bytes:
    """Return the prefix of the entries of a shard, which is given as a unit, ``1.3``."""
    return f"{unit.removeprefix('0.')}/".encode()


def state_key(subscription: str, unit: str, request: str) -> TableKey:
    """Return the key of a request's entry."""
    return TableKey(states_table(subscription), states_prefix(unit) + request.encode())


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RequestState).decode


def encode_state(state: RequestState | None) -> bytes | None:
    """Return the value to store; None removes the entry."""
    return None if state is None else _encode(state)


def decode_state(value: bytes) -> RequestState:
    """Decode a stored entry."""
    return _decode(value)
