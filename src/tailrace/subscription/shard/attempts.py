"""The attempts of a message, by its origin: its position in the topic and the number of the reset.

The table ``subscription-attempts/NAME`` has an entry ``orders/1.7@OFFSET+rN``, the offset with 20
digits, for each message that failed and is not acknowledged, or that is being called. The owner of
the shard writes it with its fence, and removes it with the acknowledgement.

`begun` says that a call began, or was about to, and had not ended when the entry was written. An
owner that finds it after an unclean end does not know what became of that call:

* *alone*: nothing else was in flight in its process. If that process has ended, the call counts as
  failed. A payload that kills its worker uses up its attempts and becomes a dead letter.
* *shared*: any of several calls may have ended the worker. It does not count.

In both cases the message is *suspect*: it is called alone next. A dead letter that was called alone
for a request stays where it is: that redelivery has failed. An owner that lost its shard and lives,
because its lease or the outcome of a commit was lost, was ended by no message.

The table ``subscription-traces/NAME`` has an entry of the same form for each dead letter whose
handler raised an error: the traceback of its last attempt. It is a table of its own, because an
owner reads the attempts of all messages when it starts.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import TableKey
from tailrace.error_text import storable
from tailrace.errors import InvalidValue
from tailrace.message import Partition

FAILURES_MAX: Final = 10
"""The number of failed attempts of a message of which time and error are kept: the last ones."""

FAILURE_CHARACTERS_MAX: Final = 200
"""The length of their errors. That of the last error is kept beside them, with its full length."""

DIED: Final = "the worker ended during the call"
"""The error of an attempt that was alone in its process when the process ended."""

_DIGITS: Final = 20


class Origin(NamedTuple):
    """The identity of a message in all queues: where it was read at first, and in which replay."""

    partition: Partition
    offset: int
    reset: int = 0

    def __str__(self) -> str:
        again = f"+r{self.reset}" if self.reset else ""
        return f"{self.partition}@{self.offset}{again}"

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Parse ``orders/1.7@42`` or ``orders/1.7@42+r1``; `InvalidValue` for other text."""
        position, _, reset = text.partition("+r")
        head, at, offset = position.rpartition("@")
        if not (at and offset.isdecimal() and (reset.isdecimal() or "+r" not in text)):
            raise InvalidValue("origin", text, "TOPIC/STORAGE.PARTITION@OFFSET, or with +rN")
        return cls(Partition.parse(head), int(offset), int(reset or 0))


class Begun(Enum):
    """The call that was under way when the attempts were stored."""

    NO = "no"
    SHARED = "shared"
    ALONE = "alone"


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """A failed attempt: its end, and its error, truncated."""

    at_ms: int
    error: str


class Attempts(msgspec.Struct, frozen=True):
    """The failed attempts of a message. The next one is due at `due_ms`; `error` is the last
    one's, and `failures` has the last of them, in order. `worker` is the process that began a call
    alone. `request` is the request for which a dead letter is being called; or, if no call is under
    way, the one during whose call the worker ended. `delay_ms` is the delay that the handler asked
    for; 0 if it is that of the policy. `parked` is True for a dead letter: its owner reads the
    entry when it is redelivered."""

    count: int = 0
    due_ms: int = 0
    begun: Begun = Begun.NO
    error: str = ""
    since_ms: int = 0
    worker: str = ""
    request: str = ""
    delay_ms: int = 0
    parked: bool = False
    failures: tuple[Failure, ...] = ()

    def begin(self, begun: Begun, worker: str = "", request: str = "") -> Attempts:
        """Return the attempts with a call under way."""
        return msgspec.structs.replace(self, begun=begun, worker=worker, request=request)

    def failed(self, error: str, now_ms: int, due_ms: int = 0, delay_ms: int = 0) -> Attempts:
        """Return the attempts with one more that failed. The error may be any text."""
        since_ms, text = self.since_ms or now_ms, storable(error)
        failure = Failure(now_ms, text[:FAILURE_CHARACTERS_MAX])
        failures = (*self.failures, failure)[-FAILURES_MAX:]
        return Attempts(
            self.count + 1, due_ms, Begun.NO, text, since_ms, delay_ms=delay_ms, failures=failures
        )

    def park(self) -> Attempts:
        """Return the attempts of a message that becomes a dead letter, or stays one."""
        return msgspec.structs.replace(self, parked=True)

    @property
    def at_rest(self) -> bool:
        """True for a dead letter of which no call was under way."""
        return self.parked and self.begun is Begun.NO

    def wait_s(self, now_ms: int, longest_s: float) -> float:
        """Return the seconds until the next attempt. See `left_s`."""
        return left_s(self.due_ms, self.delay_ms, now_ms, longest_s)

    @property
    def blank(self) -> bool:
        """True if there is nothing to store."""
        return self.count == 0 and self.begun is Begun.NO


def left_s(due_ms: int, delay_ms: int, now_ms: int, longest_s: float) -> float:
    """Return what is left of a stored delay, in seconds; 0 if the attempt is due.

    At most the delay that the handler asked for, or `longest_s`, the longest of the policy,
    whatever the wall clock said when the attempt failed.
    """
    return min(max(0.0, (due_ms - now_ms) / 1000), delay_ms / 1000 or longest_s)


class TakenOver(NamedTuple):
    """Attempts as a new owner counts them. A suspect message is called alone."""

    attempts: Attempts
    suspect: bool


def taken_over(stored: Attempts, ended: Container[str]) -> TakenOver:
    """Return what a new owner makes of stored attempts. `ended` are the processes that ended."""
    if stored.begun is Begun.NO:
        return TakenOver(stored, False)
    if stored.begun is Begun.ALONE and stored.worker in ended:
        failed = stored.failed(DIED, stored.since_ms, stored.due_ms)
        judged = failed.park() if stored.parked else failed
        return TakenOver(judged.begin(Begun.NO, request=stored.request), True)
    return TakenOver(stored.begin(Begun.NO), True)


def attempts_table(subscription: str) -> str:
    """Return the name of a subscription's table."""
    return f"subscription-attempts/{subscription}"


def attempts_prefix(partition: Partition) -> bytes:
    """Return the prefix of the entries of a partition's messages."""
    return f"{partition}@".encode()


def traces_table(subscription: str) -> str:
    """Return the name of the table with the tracebacks of dead letters."""
    return f"subscription-traces/{subscription}"


def attempts_key(subscription: str, origin: Origin) -> TableKey:
    """Return the key of a message's entry."""
    return TableKey(attempts_table(subscription), _key_of(origin))


def trace_key(subscription: str, origin: Origin) -> TableKey:
    """Return the key of the traceback of a dead letter."""
    return TableKey(traces_table(subscription), _key_of(origin))


def _key_of(origin: Origin) -> bytes:
    return f"{origin.partition}@{origin.offset:0{_DIGITS}}+r{origin.reset}".encode()


def origin_of_key(key: bytes) -> Origin:
    """Return the message of an entry's key."""
    return Origin.parse(key.decode())


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Attempts).decode


def encode_attempts(attempts: Attempts) -> bytes | None:
    """Return the value to store; None removes the entry."""
    return None if attempts.blank else _encode(attempts)


def decode_attempts(value: bytes) -> Attempts:
    """Decode a stored entry."""
    return _decode(value)
