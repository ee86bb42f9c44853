"""Durable, re-scalable, ordered topics in one directory, shared by any number of processes.

What users import is here, and in `readers`, `writers`, `functions` and `testing`; other modules are
private. Each name is loaded when it is first used, so that the command line starts without Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
        IncompatibleHub,
        InvalidName,
        InvalidValue,
        MessageTooLarge,
        NothingToRead,
        OutcomeUnknown,
        OutOfRange,
        PipelineFailed,
        Sealed,
        TopicExists,
        UnknownGroup,
        UnknownTopic,
        WatchExpired,
    )
    from tailrace.group.deliveries import ConsumerStats, Deliveries
    from tailrace.group.delivery import Delivery
    from tailrace.group.group import Group
    from tailrace.group.topic import Topic
    from tailrace.hub import Hub, open
    from tailrace.message import Message, Mode, Op, Partition, Position, Range, Receipt, Receipts
    from tailrace.pipeline.pipeline import Pipeline
    from tailrace.settings import HubSettings
    from tailrace.topic.pending import Pending
    from tailrace.topic.producer import Producer
    from tailrace.topic.scaling import Plan
    from tailrace.topic.topic import StorageTopicInfo

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Busy",
    "ConfigError",
    "Conflict",
    "ConsumerStats",
    "CorruptBatch",
    "DecodeError",
    "Deliveries",
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
    "HubSettings",
    "IncompatibleHub",
    "InvalidName",
    "InvalidValue",
    "Message",
    "MessageTooLarge",
    "Mode",
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
    "Receipt",
    "Receipts",
    "Sealed",
    "StorageTopicInfo",
    "Topic",
    "TopicExists",
    "UnknownGroup",
    "UnknownTopic",
    "WatchExpired",
    "__version__",
    "open",
]

_HOMES: Final = {
    "tailrace.group.deliveries": ("ConsumerStats", "Deliveries"),
    "tailrace.group.delivery": ("Delivery",),
    "tailrace.group.group": ("Group",),
    "tailrace.group.topic": ("Topic",),
    "tailrace.hub": ("Hub", "open"),
    "tailrace.message": (
        "Message", "Mode", "Op", "Partition", "Position", "Range", "Receipt", "Receipts",
    ),
    "tailrace.pipeline.pipeline": ("Pipeline",),
    "tailrace.settings": ("HubSettings",),
    "tailrace.topic.pending": ("Pending",),
    "tailrace.topic.producer": ("Producer",),
    "tailrace.topic.scaling": ("Plan",),
    "tailrace.topic.topic": ("StorageTopicInfo",),
}  # fmt: skip
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF.get(name, "tailrace.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
