"""Durable, re-scalable, ordered topics in one directory, shared by any number of processes.

The public interface is this module, `aio`, `readers`, `writers`, `functions`, `spark` and
`testing`; other modules are private. Each name is loaded on first use, so that the command line
starts without Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailrace import aio as aio
    from tailrace import functions as functions
    from tailrace import readers as readers
    from tailrace import spark as spark
    from tailrace import testing as testing
    from tailrace import writers as writers
    from tailrace.delivery.delivery import Delivery
    from tailrace.delivery.outcome import Reject, RetryLater
    from tailrace.delivery.retry import Retry
    from tailrace.errors import (
        BackendUnavailable,
        Busy,
        ConfigError,
        Conflict,
        CorruptBatch,
        DecodeError,
        DeliveryFailed,
        DiskFull,
        EncodeError,
        Error,
        Fenced,
        GroupExists,
        HubClosed,
        HubReplaced,
        IncompatibleHub,
        InvalidName,
        InvalidValue,
        MessageTooLarge,
        NothingToRead,
        NotSupported,
        OutcomeUnknown,
        OutOfRange,
        PipelineFailed,
        ReadOnlyHub,
        Sealed,
        TopicExists,
        TopicTypeMismatch,
        UnknownGroup,
        UnknownHub,
        UnknownTopic,
        WatchExpired,
    )
    from tailrace.group.consumer.consumer import Consumer, ConsumerStats
    from tailrace.group.group import Group
    from tailrace.hub.hub import Hub, open
    from tailrace.hub.topic import Topic
    from tailrace.message import Message, Mode, Op, Partition, Position, Range, Receipt, Receipts
    from tailrace.pipeline.pipeline import Pipeline
    from tailrace.pipeline.report import RunOutcome, RunProgress, RunReport, WriterReport
    from tailrace.pipeline.writer_status import WriterStatus
    from tailrace.settings import HubSettings
    from tailrace.topic.pending import Pending
    from tailrace.topic.producer import Producer
    from tailrace.topic.scaling import Plan
    from tailrace.topic.storage_topics import StorageTopicInfo

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Busy",
    "ConfigError",
    "Conflict",
    "Consumer",
    "ConsumerStats",
    "CorruptBatch",
    "DecodeError",
    "Delivery",
    "DeliveryFailed",
    "DiskFull",
    "EncodeError",
    "Error",
    "Fenced",
    "Group",
    "GroupExists",
    "Hub",
    "HubClosed",
    "HubReplaced",
    "HubSettings",
    "IncompatibleHub",
    "InvalidName",
    "InvalidValue",
    "Message",
    "MessageTooLarge",
    "Mode",
    "NotSupported",
    "NothingToRead",
    "Op",
    "OutOfRange",
    "OutcomeUnknown",
    "Partition",
    "Pending",
    "Pipeline",
    "PipelineFailed",
    "Plan",
    "Position",
    "Producer",
    "Range",
    "ReadOnlyHub",
    "Receipt",
    "Receipts",
    "Reject",
    "Retry",
    "RetryLater",
    "RunOutcome",
    "RunProgress",
    "RunReport",
    "Sealed",
    "StorageTopicInfo",
    "Topic",
    "TopicExists",
    "TopicTypeMismatch",
    "UnknownGroup",
    "UnknownHub",
    "UnknownTopic",
    "WatchExpired",
    "WriterReport",
    "WriterStatus",
    "__version__",
    "open",
]

_HOMES: Final = {
    "tailrace.group.consumer.consumer": ("ConsumerStats", "Consumer"),
    "tailrace.delivery.delivery": ("Delivery",),
    "tailrace.delivery.outcome": ("Reject", "RetryLater"),
    "tailrace.delivery.retry": ("Retry",),
    "tailrace.group.group": ("Group",),
    "tailrace.hub.topic": ("Topic",),
    "tailrace.hub.hub": ("Hub", "open"),
    "tailrace.message": (
        "Message", "Mode", "Op", "Partition", "Position", "Range", "Receipt", "Receipts",
    ),
    "tailrace.pipeline.pipeline": ("Pipeline",),
    "tailrace.pipeline.report": ("RunOutcome", "RunProgress", "RunReport", "WriterReport"),
    "tailrace.pipeline.writer_status": ("WriterStatus",),
    "tailrace.settings": ("HubSettings",),
    "tailrace.topic.pending": ("Pending",),
    "tailrace.topic.producer": ("Producer",),
    "tailrace.topic.scaling": ("Plan",),
    "tailrace.topic.storage_topics": ("StorageTopicInfo",),
}  # fmt: skip
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

_MODULES: Final = ("aio", "functions", "readers", "spark", "testing", "writers")
"""The other public modules: ``tailrace.readers`` is found also if only tailrace was imported."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"tailrace.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, "tailrace.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
