"""Every error Tailrace raises, in one tree.

    Error
    ├── UnknownTopic (LookupError)          no such topic
    ├── TopicExists (ValueError)            the name is taken, by another definition
    ├── UnknownGroup (LookupError)          no such group
    ├── GroupExists (ValueError)            the name is taken, by a group of other topics
    ├── InvalidName (ValueError)            a name that cannot be a directory and a URL part
    ├── InvalidValue (ValueError)           an argument out of its range, with the range
    ├── OutOfRange (IndexError)             no record at that offset, with the valid range
    ├── Sealed (RuntimeError)               the storage topic takes no more records   · retryable
    ├── Fenced (RuntimeError)               a newer owner has this name
    ├── Conflict (RuntimeError)             an entry is not as expected   · retryable
    ├── Busy (RuntimeError)                 someone else is at it   · retryable
    ├── WatchExpired (LookupError)          changes asked for are no longer kept; scan again
    ├── CorruptBatch (ValueError)           committed bytes are damaged
    ├── MessageTooLarge (ValueError)        over `message_bytes_max`
    ├── EncodeError (TypeError)             a value that is not the topic's type
    ├── DecodeError (ValueError)            bytes that are not the topic's type
    ├── ConfigError (ValueError)            a setting, a file or an environment variable
    ├── DeliveryFailed (RuntimeError)       a message was given back too often; others go on
    ├── NothingToRead (LookupError)         a source that is in order, and empty so far
    ├── PipelineFailed (RuntimeError)       a reader or writers of a pipeline could not go on
    ├── IncompatibleHub (RuntimeError)      a hub this version or this machine cannot open
    └── BackendUnavailable (TimeoutError)   the storage did not answer in time   · retryable
        ├── DiskFull                        no room; nothing was written
        ├── HubClosed                       closed, or stopped after a failed sync: open it again
        └── OutcomeUnknown                  it may or may not be stored: look before you repeat it

Each says what was wrong, what is valid and what to do, carries the values as attributes,
pickles, and knows whether the same call may succeed later (`retryable`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.amount import format_amount

if TYPE_CHECKING:
    from tailrace.group.delivery import Delivery

__all__ = [
    "BackendUnavailable",
    "Busy",
    "ConfigError",
    "Conflict",
    "CorruptBatch",
    "DecodeError",
    "DeliveryFailed",
    "DiskFull",
    "EncodeError",
    "Error",
    "Fenced",
    "GroupExists",
    "HubClosed",
    "IncompatibleHub",
    "InvalidName",
    "InvalidValue",
    "MessageTooLarge",
    "NothingToRead",
    "OutOfRange",
    "OutcomeUnknown",
    "PipelineFailed",
    "Sealed",
    "TopicExists",
    "UnknownGroup",
    "UnknownTopic",
    "WatchExpired",
]


class Error(Exception):
    """The root: `except tailrace.Error` catches everything Tailrace raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, *sentences: str) -> None:
        super().__init__(" · ".join(sentence for sentence in sentences if sentence))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[Error], args: tuple[Any, ...], fields: dict[str, Any]) -> Error:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class UnknownTopic(Error, LookupError):
    """No topic of that name in this hub, or no such storage topic or partition of it."""

    def __init__(self, topic: str, hub: str, known: Iterable[str] = ()) -> None:
        self.topic = topic
        self.known = sorted(known)
        near = difflib.get_close_matches(topic, self.known, n=1)
        here = format_amount(len(self.known), "topic")
        super().__init__(
            f"no topic {topic!r} in {hub}",
            f"did you mean {near[0]!r}? ({here} here)" if near else "",
            f"see what there is: tailrace topic show {topic.partition('/')[0]}"
            if "/" in topic
            else f"create it: tailrace topic create {topic} --partitions 4",
        )


class TopicExists(Error, ValueError):
    """The name is taken; `differences` says how the stored definition differs from the one asked
    for."""

    def __init__(self, topic: str, differences: Iterable[str] = ()) -> None:
        self.topic = topic
        self.differences = list(differences)
        super().__init__(
            f"topic {topic!r} exists" + (" with another definition" if self.differences else ""),
            "; ".join(self.differences),
            "open it with hub.topic(), or choose another name"
            if self.differences
            else "open it with hub.topic(), or create it with exist_ok=True, or --exist-ok",
        )


class UnknownGroup(Error, LookupError):
    """No group of that name in this hub."""

    def __init__(self, group: str, hub: str, known: Iterable[str] = ()) -> None:
        self.group = group
        self.known = sorted(known)
        near = difflib.get_close_matches(group, self.known, n=1)
        here = format_amount(len(self.known), "group")
        super().__init__(
            f"no group {group!r} in {hub}",
            f"did you mean {near[0]!r}? ({here} here)" if near else "",
            f"make it by consuming: tailrace tail TOPIC --group {group}",
        )


class GroupExists(Error, ValueError):
    """The name is taken by a group that consumes other topics: those that match `filter`."""

    def __init__(self, group: str, filter: str, asked: str) -> None:
        self.group = group
        self.filter = filter
        self.asked = asked
        super().__init__(
            f"group {group!r} consumes {filter!r}, not {asked!r}",
            f"choose another name, or delete it: tailrace group delete {group}",
        )


class InvalidName(Error, ValueError):
    """A name that could not safely be a directory, a URL part and a metric label."""

    def __init__(self, kind: str, name: object, valid: str = "") -> None:
        self.kind = kind
        self.name = name
        shown = repr(name)
        valid = valid or "1 to 200 of a-z A-Z 0-9 . _ - and not starting with a dot or -"
        super().__init__(
            f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not a valid {kind} name",
            f"valid: {valid}",
        )


class InvalidValue(Error, ValueError):
    """An argument that is not among the valid ones, which the message lists."""

    def __init__(self, what: str, value: object, valid: str, remedy: str = "") -> None:
        self.what = what
        self.value = value
        self.valid = valid
        shown = repr(value)
        super().__init__(
            f"{what} is {shown if len(shown) <= 80 else shown[:77] + '...'}",
            f"valid: {valid}",
            remedy,
        )


class OutOfRange(Error, IndexError):
    """No record at that offset. `next_offset` is the next existing one where the offset is in a
    gap."""

    def __init__(
        self, where: str, offset: int, start: int, end: int, next_offset: int | None = None
    ) -> None:
        self.where = where
        self.offset = offset
        self.start = start
        self.end = end
        self.next_offset = next_offset
        if next_offset is not None:
            valid = f"a gap: the next record is at {next_offset}"
        elif start < end:
            valid = f"valid: {start} <= offset < {end}"
        else:
            valid = f"it holds no records; the next one gets offset {end} or higher"
        super().__init__(f"no record at {where}@{offset}", valid)


class Sealed(Error, RuntimeError):
    """The storage topic takes no more records; the produce pointer has moved on."""

    retryable = True

    def __init__(self, topic: str, storage: int) -> None:
        self.topic = topic
        self.storage = storage
        super().__init__(
            f"storage {storage} of topic {topic!r} is sealed", "push again: it goes to the next one"
        )


class Fenced(Error, RuntimeError):
    """Someone newer holds this name, so this owner may write no more. `current` is None where only
    this is known: that it was let go of."""

    def __init__(self, fence: str, epoch: int, current: int | None) -> None:
        self.fence = fence
        self.epoch = epoch
        self.current = current
        if current is None:
            what = f"{fence} is no longer this owner's (epoch {epoch})"
            remedy = "what it did not store is for whoever has it next"
        else:
            what = f"{fence} is held by a newer owner (epoch {current}, this one had {epoch})"
            remedy = "let the newer owner go on, or open the name again to take it over"
        super().__init__(what, "nothing was written", remedy)


class Conflict(Error, RuntimeError):
    """An entry is not as the caller expected; `value` and `version` are what it holds now."""

    retryable = True

    def __init__(self, key: str, expected: int, version: int, value: bytes | None = None) -> None:
        self.key = key
        self.expected = expected
        self.version = version
        self.value = value
        super().__init__(
            f"{key} has version {version}, expected {expected}",
            "nothing was written",
            "read it again, then decide",
        )


class Busy(Error, RuntimeError):
    """Another operation on the same thing is under way."""

    retryable = True


class WatchExpired(Error, LookupError):
    """Removals after the asked-for version are no longer remembered."""

    def __init__(self, after: int, floor: int) -> None:
        self.after = after
        self.floor = floor
        super().__init__(
            f"changes after version {after} are no longer all kept",
            f"kept: after {floor}",
            "scan again",
        )


class CorruptBatch(Error, ValueError):
    """Committed bytes are not what was committed. They are never served and never dropped."""

    def __init__(self, partition: str, first: int, last: int, file: str, reason: str) -> None:
        self.partition = partition
        self.first = first
        self.last = last
        self.file = file
        self.reason = reason
        super().__init__(
            f"{partition}@{first} to @{last} is damaged in {file}: {reason}",
            f"list all damage: tailrace segment verify {partition}",
        )


class MessageTooLarge(Error, ValueError):
    """A key, a message or a batch over its limit."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int, setting: str) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            f"{what} has {size_bytes:,} bytes",
            f"valid: up to {limit_bytes:,} ({setting})",
            "nothing was written",
        )


class EncodeError(Error, TypeError):
    """A value that does not fit the topic's type."""


class DecodeError(Error, ValueError):
    """Bytes that do not decode; names the position, the type and where in the document.
    Permanent."""

    def __init__(self, where: str, kind: str, reason: str) -> None:
        self.where = where
        self.kind = kind
        self.reason = reason
        super().__init__(f"{where} is not {kind}: {reason}", "its bytes are in .data")


class ConfigError(Error, ValueError):
    """A setting that is unknown or does not parse; names the file or variable it came from."""


class DeliveryFailed(Error, RuntimeError):
    """A consumer gave a message back at its last attempt: nothing more of its key is handed out."""

    __slots__ = ("_delivery",)  # which no pickle takes along

    def __init__(self, delivery: Delivery[Any]) -> None:
        self.position = delivery.id
        self.key = delivery.key
        self.attempts = delivery.attempt
        self._delivery = delivery
        whose = "a message without a key" if self.key is None else f"key {self.key!r}"
        super().__init__(
            f"{self.position} ({whose}) was given back {format_amount(self.attempts, 'time')}",
            "other keys go on when you do" if self.key else "others go on when you do",
            "to pass over it, acknowledge its delivery, or from outside: tailrace group skip; else"
            " mend the cause and start the consumer again",
        )

    @property
    def delivery(self) -> Delivery[Any]:
        """The message in its last attempt: ``delivery.ack()`` passes over it. An `Error` in a copy
        or another process: only who consumes it can acknowledge it."""
        try:
            return self._delivery
        except AttributeError:
            raise Error(f"{self.position} is not in hand here", "read it by its position") from None


class NothingToRead(Error, LookupError):
    """A source is in order and has nothing to read yet: a pipeline may run and wait for it."""


class PipelineFailed(Error, RuntimeError):
    """The reader or some writers of a pipeline failed; the others did all they could."""

    def __init__(self, pipeline: str, troubles: Sequence[str]) -> None:
        self.pipeline = pipeline
        self.troubles = tuple(troubles)
        super().__init__(
            f"pipeline {pipeline} failed: {'; '.join(troubles)}",
            "nothing that was read is lost",
            f"look: tailrace pipeline status {pipeline}",
        )


class IncompatibleHub(Error, RuntimeError):
    """A directory that is a hub of a newer format, lies on a network file system, or is no hub at
    all."""


class BackendUnavailable(Error, TimeoutError):
    """The storage did not answer in time. Nothing was written, unless it is an `OutcomeUnknown`."""

    retryable = True


class DiskFull(BackendUnavailable):
    """No room on the disk: nothing was written; free some space and go on."""


class HubClosed(BackendUnavailable):
    """The hub was closed, or stopped itself after a failed sync."""

    retryable = False


class OutcomeUnknown(BackendUnavailable):
    """The commit may or may not have happened. Named producers find out and go on by themselves."""

    retryable = False
