"""A request that an operator made for the dead letters of one shard.

A request has targets: a key, or some letters of a key. A message without a key is a target of its
own. What was selected by error, time or position was resolved to keys and letters when the request
was made.

Under ``block`` a key stands for all its letters. `REDELIVER` delivers them in order until the key
lags no more, those that arrive meanwhile included. `DISCARD` discards those up to `until`, the last
letter when the request was made, and no message that nobody has seen. Under ``continue`` a target
names its letters.

Of several letters of a key, one that is not its first is refused, unless the request has
`break_order`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

TARGETS_MAX: Final = 10_000
"""The most letters and keys that one request names."""


class RequestAction(Enum):
    """What to do with dead letters."""

    REDELIVER = "redeliver"
    DISCARD = "discard"


class LetterPlace(NamedTuple):
    """The place of a dead letter in DLQ."""

    storage: int
    partition: int
    offset: int


class RequestTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key, with some of its letters in order, or a letter without a key.

    Without `letters`, all letters of the key; with `until`, none after that one.
    """

    key: bytes | None = None
    letters: tuple[LetterPlace, ...] = ()
    until: LetterPlace | None = None

    def __post_init__(self) -> None:
        if not self.key and len(self.letters) != 1:
            raise ValueError("a target without a key is one letter")


class LetterRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for the dead letters of a shard, and who made it, when and why.

    The redelivery of a key has failed when `attempts` calls of one letter have, with the delays of
    the retry policy between them.
    """

    id: str
    shard: int
    action: RequestAction
    targets: tuple[RequestTarget, ...]
    made_ms: int
    who: str
    pid: int
    command: str
    reason: str = ""
    break_order: bool = False
    attempts: int = 1


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LetterRequest).decode


def encode_request(request: LetterRequest) -> bytes:
    """Return the value to store."""
    return _encode(request)


def decode_request(value: bytes) -> LetterRequest:
    """Decode a stored request."""
    return _decode(value)
