"""Every error Tailrace raises, in one tree.

    Error
    ├── UnknownTopic (LookupError)          no topic of that name
    ├── TopicExists (ValueError)            another topic has that name
    ├── UnknownGroup (LookupError)          no group of that name
    ├── GroupExists (ValueError)            a group of other topics has that name
    ├── UnknownSubscription (LookupError)   no subscription of that name
    │   └── UnknownQueue                    no queue of that name
    ├── UnknownReplay (LookupError)         no replay of that id of the queue
    ├── UnknownSource (LookupError)         no source of that name
    ├── SubscriptionExists (ValueError)     another subscription has that name
    │   └── QueueExists                     another queue has that name
    ├── InvalidName (ValueError)            a name that cannot be a directory and a URL part
    ├── InvalidValue (ValueError)           an argument out of its range, with the range
    ├── OutOfRange (IndexError)             no record at that offset, with the valid range
    │   └── StorageDeleted                  its storage topic was deleted, with those that are left
    ├── NotRetained (LookupError)           records of that time were removed, with the rest
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
    ├── EffectsUnavailable (ConnectionError)  the database of effects did not answer   · retryable
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
from tailrace.clock import utc_time
from tailrace.errors.base import Error
from tailrace.errors.names import (
    GroupExists,
    InvalidName,
    QueueExists,
    SubscriptionExists,
    TopicExists,
    UnknownGroup,
    UnknownQueue,
    UnknownReplay,
    UnknownSource,
    UnknownSubscription,
    UnknownTopic,
)
from tailrace.errors.storage import (
    BackendUnavailable,
    DiskFull,
    EffectsUnavailable,
    HubClosed,
    HubReplaced,
    IncompatibleHub,
    NotSupported,
    OutcomeUnknown,
    ReadOnlyHub,
    UnknownHub,
)

if TYPE_CHECKING:
    from tailrace.delivery.delivery import Delivery
    from tailrace.pipeline.report import RunReport

__all__ = [
    "BackendUnavailable", "Busy", "ConfigError", "Conflict", "CorruptBatch", "DecodeError",
    "DeliveryFailed", "DiskFull", "EffectsUnavailable", "EncodeError", "Error", "Fenced",
    "GroupExists", "HubClosed", "HubReplaced", "IncompatibleHub", "InvalidName", "InvalidValue",
    "MessageTooLarge", "NotRetained", "NotSupported", "NothingToRead", "OutOfRange",
    "OutcomeUnknown", "PipelineFailed", "QueueExists", "ReadOnlyHub", "Sealed", "StorageDeleted",
    "SubscriptionExists", "TopicExists", "TopicTypeMismatch", "UnknownGroup", "UnknownHub",
    "UnknownQueue", "UnknownReplay", "UnknownSource", "UnknownSubscription", "UnknownTopic",
    "WatchExpired",
]  # fmt: skip


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


class StorageDeleted(OutOfRange):
    """The storage topic of a partition was deleted with its records.

    `offset` is the requested one, or None for the partition as a whole. `end` was the end offset of
    the partition. `storages` are the indices of the storage topics that exist, which are valid.
    """

    def __init__(
        self, where: str, offset: int | None, end: int, storages: Iterable[int] = ()
    ) -> None:
        self.where = where
        self.offset = end if offset is None else offset
        self.start = self.end = end
        self.next_offset = None
        self.storages = tuple(storages)
        topic, _, partition = where.partition("/")
        storage = partition.partition(".")[0]
        missing = f"no partition {where}" if offset is None else f"no record at {where}@{offset}"
        listed = ", ".join(map(str, self.storages))
        Error.__init__(
            self,
            f"{missing}: storage {storage} of topic {topic!r} was deleted with its records",
            f"existing storage topics: {listed}" if listed else "",
            f"show them: tailrace topic show {topic}",
        )


class NotRetained(Error, LookupError):
    """Records of a range of time may have been removed: the range begins before the oldest
    timestamp that is left.

    `retained` has the least and the greatest timestamp that are left, or None if no record is.
    """

    def __init__(
        self, where: str, start_ms: int, end_ms: int, retained: tuple[int, int] | None
    ) -> None:
        self.where = where
        self.start_ms = start_ms
        self.end_ms = end_ms
        self.retained = None if retained is None else (retained[0], retained[1])
        if retained is None:
            left = "retained: no records"
            remedy = "start the range at the time of its next message, or later"
        else:
            left = f"retained: {_text(retained[0])} to {_text(retained[1])}"
            remedy = f"start the range at {_text(retained[0])} or later"
        super().__init__(
            f"{where} no longer has all records from {_text(start_ms)} to {_text(end_ms)}",
            left,
            remedy,
        )


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


def _text(time_ms: int) -> str:
    """Return a time as an offset spec has it, or a number that is no time of Python's."""
    try:
        return utc_time(time_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return f"{time_ms} ms"


# Tracebacks show, and pickles name, the module that users import from.
for _name in __all__:
    globals()[_name].__module__ = __name__
