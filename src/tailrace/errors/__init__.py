"""Every error Tailrace raises, in one tree.

    Error
    ├── UnknownTopic (LookupError)          no topic of that name
    ├── TopicExists (ValueError)            another topic has that name
    ├── UnknownGroup (LookupError)          no group of that name
    ├── GroupExists (ValueError)            a group of other topics has that name
    ├── InvalidName (ValueError)            a name that cannot be a directory and a URL part
    ├── InvalidValue (ValueError)           an argument out of its range, with the range
    ├── OutOfRange (IndexError)             no record at that offset, with the valid range
    ├── Sealed (RuntimeError)               the storage topic accepts no more records   · retryable
    ├── Fenced (RuntimeError)               a newer owner has this name
    ├── Conflict (RuntimeError)             an entry has an unexpected version   · retryable
    ├── Busy (RuntimeError)                 another process or thread is doing it   · retryable
    ├── WatchExpired (LookupError)          the requested changes are no longer stored; scan again
    ├── CorruptBatch (ValueError)           committed bytes are damaged
    ├── MessageTooLarge (ValueError)        over `message_bytes_max`
    ├── TopicTypeMismatch (TypeError)       a type that does not agree with the topic's
    ├── EncodeError (TypeError)             a value that is not of the topic's type
    ├── DecodeError (ValueError)            bytes that are not of the topic's type
    ├── ConfigError (ValueError)            an invalid setting, file or environment variable
    ├── DeliveryFailed (RuntimeError)       a message failed its last attempt; other keys continue
    ├── NothingToRead (LookupError)         a source that is valid, and empty so far
    ├── PipelineFailed (RuntimeError)       the reader or some writers of a pipeline failed
    ├── UnknownHub (LookupError)            no hub in that directory
    ├── IncompatibleHub (RuntimeError)      a hub that this version or this machine cannot open
    ├── ReadOnlyHub (PermissionError)       opened read-only, or without the right to write
    ├── NotSupported (RuntimeError)         an operation that the hub's backend does not have
    └── BackendUnavailable (TimeoutError)   the storage did not answer in time   · retryable
        ├── DiskFull                        no space on the disk; nothing was written
        ├── HubClosed                       closed, or stopped after a failed sync: open it again
        │   └── HubReplaced                 removed, moved or replaced while it was open
        └── OutcomeUnknown                  the commit may have happened: check before you retry

Each message says what was wrong, what is valid and what to do. Each error has the values as
attributes, can be pickled, and says if the same call may succeed later (`retryable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.amount import format_amount
from tailrace.errors.base import Error
from tailrace.errors.storage import (
    BackendUnavailable,
    DiskFull,
    HubClosed,
    HubReplaced,
    IncompatibleHub,
    NotSupported,
    OutcomeUnknown,
    ReadOnlyHub,
    UnknownHub,
)
from tailrace.reserved_names import INTERNAL_PREFIX, pipeline_of
from tailrace.suggestion import did_you_mean

if TYPE_CHECKING:
    from tailrace.delivery.delivery import Delivery
    from tailrace.pipeline.report import RunReport

__all__ = [
    "BackendUnavailable", "Busy", "ConfigError", "Conflict", "CorruptBatch", "DecodeError",
    "DeliveryFailed", "DiskFull", "EncodeError", "Error", "Fenced", "GroupExists", "HubClosed",
    "HubReplaced", "IncompatibleHub", "InvalidName", "InvalidValue", "MessageTooLarge",
    "NotSupported", "NothingToRead", "OutOfRange", "OutcomeUnknown", "PipelineFailed",
    "ReadOnlyHub", "Sealed", "TopicExists", "TopicTypeMismatch", "UnknownGroup", "UnknownHub",
    "UnknownTopic", "WatchExpired",
]  # fmt: skip


class UnknownTopic(Error, LookupError):
    """No topic of that name in this hub, or no such storage topic or partition of it.

    `known` lists the topics of the hub; internal topics only if the name is that of one.
    """

    def __init__(self, topic: str, hub: str, known: Iterable[str] = ()) -> None:
        self.topic = topic
        internal = topic.startswith(INTERNAL_PREFIX)
        self.known = sorted(
            name for name in known if internal or not name.startswith(INTERNAL_PREFIX)
        )
        near = did_you_mean(topic, self.known)
        here = format_amount(len(self.known), "topic")
        super().__init__(
            f"no topic {topic!r} in {hub}",
            f"{near} ({here} here)" if near else "",
            self._remedy(topic),
        )

    @staticmethod
    def _remedy(topic: str) -> str:
        name, slash, _ = topic.partition("/")
        if slash:
            return f"list its partitions: tailrace topic show {name}"
        if (pipeline := pipeline_of(topic)) is not None:
            return f"pipeline {pipeline!r} creates it when it runs: tailrace pipeline run FILE"
        return f"create it: tailrace topic create {topic} --partitions 4"


class TopicExists(Error, ValueError):
    """A topic of that name exists. `differences` lists how its definition differs from the
    requested one."""

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
        near = did_you_mean(group, self.known)
        here = format_amount(len(self.known), "group")
        super().__init__(
            f"no group {group!r} in {hub}",
            f"{near} ({here} here)" if near else "",
            f"create it by consuming: tailrace tail TOPIC --group {group}",
        )


class GroupExists(Error, ValueError):
    """A group of that name exists and consumes other topics: those that match `filter`."""

    def __init__(self, group: str, filter: str, asked: str) -> None:
        self.group = group
        self.filter = filter
        self.asked = asked
        super().__init__(
            f"group {group!r} consumes {filter!r}, not {asked!r}",
            f"choose another name, or delete it: tailrace group delete {group}",
        )


class InvalidName(Error, ValueError):
    """A name that is not safe as a directory, a part of a URL and a metric label."""

    def __init__(self, kind: str, name: object, valid: str = "") -> None:
        self.kind = kind
        self.name = name
        shown = repr(name)
        valid = valid or "1 to 200 characters of a-z A-Z 0-9 . _ - that do not start with . or -"
        super().__init__(
            f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not a valid {kind} name",
            f"valid: {valid}",
        )


class InvalidValue(Error, ValueError):
    """An argument that is not valid. The message lists the valid values.

    `problem` replaces the first sentence of the message, which names the argument and its value.
    """

    def __init__(
        self, what: str, value: object, valid: str, remedy: str = "", problem: str = ""
    ) -> None:
        self.what = what
        self.value = value
        self.valid = valid
        self.remedy = remedy
        shown = repr(value)
        super().__init__(
            problem or f"{what} is {shown if len(shown) <= 80 else shown[:77] + '...'}",
            f"valid: {valid}" if valid else "",
            remedy,
        )


class OutOfRange(Error, IndexError):
    """No record at that offset. If the offset is in a gap, `next_offset` is the next record's."""

    def __init__(
        self, where: str, offset: int, start: int, end: int, next_offset: int | None = None
    ) -> None:
        self.where = where
        self.offset = offset
        self.start = start
        self.end = end
        self.next_offset = next_offset
        if next_offset is not None:
            valid = f"the offset is in a gap: the next record is at {next_offset}"
        elif start < end:
            valid = f"valid: {start} <= offset < {end}"
        else:
            valid = f"the partition is empty; its next record gets offset {end} or higher"
        super().__init__(f"no record at {where}@{offset}", valid)


class Sealed(Error, RuntimeError):
    """The storage topic accepts no more records; pushes go to the next storage topic."""

    retryable = True

    def __init__(self, topic: str, storage: int) -> None:
        self.topic = topic
        self.storage = storage
        super().__init__(
            f"storage {storage} of topic {topic!r} is sealed",
            "push again: the message goes to the next one",
        )


class Fenced(Error, RuntimeError):
    """A newer owner has this name, so this owner may no longer write.

    `current` is the newer epoch, or None if only the loss of ownership is known.
    """

    def __init__(self, fence: str, epoch: int, current: int | None) -> None:
        self.fence = fence
        self.epoch = epoch
        self.current = current
        if current is None:
            what = f"{fence} is no longer this owner's (epoch {epoch} ended)"
            remedy = "its next owner continues from the stored progress"
        else:
            what = f"{fence} has a newer owner (epoch {current}; this owner had {epoch})"
            remedy = "stop this owner, or open the name again to take it over"
        super().__init__(what, "nothing was written", remedy)


class Conflict(Error, RuntimeError):
    """An entry does not have the expected version; `value` and `version` are its current ones."""

    retryable = True

    def __init__(self, key: str, expected: int, version: int, value: bytes | None = None) -> None:
        self.key = key
        self.expected = expected
        self.version = version
        self.value = value
        super().__init__(
            f"{key} has version {version}, expected {expected}",
            "nothing was written",
            "read it again and retry",
        )


class Busy(Error, RuntimeError):
    """Another process or thread is doing an operation on the same object."""

    retryable = True


class WatchExpired(Error, LookupError):
    """Removals after the requested version are no longer stored."""

    def __init__(self, after: int, floor: int) -> None:
        self.after = after
        self.floor = floor
        super().__init__(
            f"some changes after version {after} are no longer stored",
            f"valid: {floor} or later",
            "scan again",
        )


class CorruptBatch(Error, ValueError):
    """Stored bytes differ from the committed ones. Tailrace never returns and never drops them."""

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
    """A key, a message or a batch is over its limit.

    `size_bytes` is the size. With `at_least`, the value was not read to its end and is larger.
    """

    def __init__(
        self,
        what: str,
        size_bytes: int,
        limit_bytes: int,
        setting: str,
        *,
        at_least: bool = False,
    ) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            f"{what} has {'more than ' if at_least else ''}{size_bytes:,} bytes",
            f"valid: up to {limit_bytes:,} ({setting})",
            "nothing was written",
        )


class TopicTypeMismatch(Error, TypeError):
    """A type that does not agree with the type of a topic. `differences` names the fields."""

    def __init__(self, topic: str, stored: str, offered: str, differences: Iterable[str]) -> None:
        self.topic = topic
        self.stored = stored
        self.offered = offered
        self.differences = list(differences)
        super().__init__(
            f"topic {topic!r} takes {stored}, not {offered}: {'; '.join(self.differences)}",
            "valid: a type with the same fields; a field that one of them adds has a default",
            "to open the topic anyway: any_type=True",
        )


class EncodeError(Error, TypeError):
    """A value that is not of the topic's type."""


class DecodeError(Error, ValueError):
    """Bytes that cannot be decoded. The message names the position, the type and the place in the
    document. A retry fails again."""

    def __init__(self, where: str, kind: str, reason: str) -> None:
        self.where = where
        self.kind = kind
        self.reason = reason
        super().__init__(f"{where} is not {kind}: {reason}", "the undecoded bytes are in .data")


class ConfigError(Error, ValueError):
    """A setting that is unknown or not valid. The message names its file or variable."""


class DeliveryFailed(Error, RuntimeError):
    """A message failed its last attempt: no more messages of its key are delivered."""

    __slots__ = ("_delivery",)  # not pickled

    def __init__(self, delivery: Delivery[Any], group: str | None = None) -> None:
        self.group = group
        self.position = delivery.id
        self.key = delivery.key
        self.attempts = delivery.attempt
        self._delivery = delivery
        key = "no key" if self.key is None else f"key {self.key!r}"
        others = "other messages" if self.key is None else "other keys"
        super().__init__(
            f"{self.position} ({key}) failed after {format_amount(self.attempts, 'attempt')}",
            f"{others} continue if you keep iterating",
            "fix the cause and restart the consumer, or skip the message with .delivery.ack() or"
            f" tailrace group skip {group or 'GROUP'} {self.position} --reason TEXT",
        )

    @property
    def delivery(self) -> Delivery[Any]:
        """The delivery that failed: ``delivery.ack()`` skips the message. An `Error` in a copy of
        this error or in another process, because only the consumer itself can acknowledge it."""
        try:
            return self._delivery
        except AttributeError:
            raise Error(
                f"{self.position} is not in flight here", "read the message by its position"
            ) from None


class NothingToRead(Error, LookupError):
    """A source has nothing to read yet: a run with `once` needs `allow_empty`, others wait."""


class PipelineFailed(Error, RuntimeError):
    """The reader or some writers of a pipeline failed; the other writers wrote all
    that they could. `report` is that of a run that has ended."""

    def __init__(self, pipeline: str, failures: Sequence[str], report: RunReport | None = None):
        self.pipeline, self.failures, self.report = pipeline, tuple(failures), report
        super().__init__(
            f"pipeline {pipeline} failed: {'; '.join(failures)}",
            "no record is lost: the next run continues from the stored progress",
            f"show its state: tailrace pipeline status {pipeline}",
        )


# Tracebacks show, and pickles name, the module that users import from.
for _name in __all__:
    globals()[_name].__module__ = __name__
