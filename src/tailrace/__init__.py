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
    from tailrace.app.app import App
    from tailrace.app.running_app import RunningApp
    from tailrace.delivery.breaker import Breaker
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
        EffectsUnavailable,
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
        NotRetained,
        NotSupported,
        OutcomeUnknown,
        OutOfRange,
        PipelineFailed,
        QueueExists,
        ReadOnlyHub,
        Sealed,
        StorageDeleted,
        SubscriptionExists,
        TopicExists,
        TopicTypeMismatch,
        UnknownGroup,
        UnknownHub,
        UnknownQueue,
        UnknownReplay,
        UnknownSource,
        UnknownSubscription,
        UnknownTopic,
        WatchExpired,
    )
    from tailrace.group.consumer.consumer import Consumer, ConsumerStats
    from tailrace.group.group import Group
    from tailrace.hub.dead_letters import DeadLetters, SubscriptionLetter
    from tailrace.hub.hub import Hub
    from tailrace.hub.opening import open
    from tailrace.hub.queue import Queue, QueueConsumer
    from tailrace.hub.replay import Replay
    from tailrace.hub.subscription import Subscription
    from tailrace.hub.topic import Topic
    from tailrace.message import Message, Mode, Op, Partition, Position, Range, Receipt, Receipts
    from tailrace.operations.metrics.hub_metrics import serve_metrics
    from tailrace.operations.metrics.server import MetricsServer
    from tailrace.pipeline.pipeline import Pipeline
    from tailrace.pipeline.report import RunOutcome, RunProgress, RunReport, WriterReport
    from tailrace.pipeline.writer_status import WriterStatus
    from tailrace.queue.effects.sql_effects import SqlEffects
    from tailrace.queue.replay.job import ReplayState
    from tailrace.queue.replay.progress import ReplayProgress
    from tailrace.queue.stats import MessageCounts, QueueStats
    from tailrace.settings import HubSettings
    from tailrace.source.report import (
        NamespaceProgress,
        NamespaceState,
        SourceOutcome,
        SourceProgress,
        SourceReport,
    )
    from tailrace.source.source import Source
    from tailrace.subscription.store.describe import SubscriptionInfo
    from tailrace.subscription.store.group_state import GroupStates
    from tailrace.subscription.store.key_state import AttemptFailure, KeyState, KeyStatus
    from tailrace.subscription.store.message_state import MessagePlace
    from tailrace.subscription.store.requests.making import MadeRequest
    from tailrace.subscription.store.reset.plan import PartitionReset, ResetPlan
    from tailrace.subscription.worker.worker import Worker, WorkerStats
    from tailrace.topic.envelope import Envelope
    from tailrace.topic.pending import Pending
    from tailrace.topic.producer import Producer
    from tailrace.topic.scaling import Plan
    from tailrace.topic.storage_topics import StorageTopicInfo
    from tailrace.topic.trimming import Trim

__version__ = "0.1.0"

__all__ = [
    "App",
    "AttemptFailure",
    "BackendUnavailable",
    "Breaker",
    "Busy",
    "ConfigError",
    "Conflict",
    "Consumer",
    "ConsumerStats",
    "CorruptBatch",
    "DeadLetters",
    "DecodeError",
    "Delivery",
    "DeliveryFailed",
    "DiskFull",
    "EffectsUnavailable",
    "EncodeError",
    "Envelope",
    "Error",
    "Fenced",
    "Group",
    "GroupExists",
    "GroupStates",
    "Hub",
    "HubClosed",
    "HubReplaced",
    "HubSettings",
    "IncompatibleHub",
    "InvalidName",
    "InvalidValue",
    "KeyState",
    "KeyStatus",
    "MadeRequest",
    "Message",
    "MessageCounts",
    "MessagePlace",
    "MessageTooLarge",
    "MetricsServer",
    "Mode",
    "NamespaceProgress",
    "NamespaceState",
    "NotRetained",
    "NotSupported",
    "NothingToRead",
    "Op",
    "OutOfRange",
    "OutcomeUnknown",
    "Partition",
    "PartitionReset",
    "Pending",
    "Pipeline",
    "PipelineFailed",
    "Plan",
    "Position",
    "Producer",
    "Queue",
    "QueueConsumer",
    "QueueExists",
    "QueueStats",
    "Range",
    "ReadOnlyHub",
    "Receipt",
    "Receipts",
    "Reject",
    "Replay",
    "ReplayProgress",
    "ReplayState",
    "ResetPlan",
    "Retry",
    "RetryLater",
    "RunOutcome",
    "RunProgress",
    "RunReport",
    "RunningApp",
    "Sealed",
    "Source",
    "SourceOutcome",
    "SourceProgress",
    "SourceReport",
    "SqlEffects",
    "StorageDeleted",
    "StorageTopicInfo",
    "Subscription",
    "SubscriptionExists",
    "SubscriptionInfo",
    "SubscriptionLetter",
    "Topic",
    "TopicExists",
    "TopicTypeMismatch",
    "Trim",
    "UnknownGroup",
    "UnknownHub",
    "UnknownQueue",
    "UnknownReplay",
    "UnknownSource",
    "UnknownSubscription",
    "UnknownTopic",
    "WatchExpired",
    "Worker",
    "WorkerStats",
    "WriterReport",
    "WriterStatus",
    "__version__",
    "open",
    "serve_metrics",
]

_HOMES: Final = {
    "tailrace.app.app": ("App",),
    "tailrace.app.running_app": ("RunningApp",),
    "tailrace.group.consumer.consumer": ("ConsumerStats", "Consumer"),
    "tailrace.delivery.breaker": ("Breaker",),
    "tailrace.delivery.delivery": ("Delivery",),
    "tailrace.delivery.outcome": ("Reject", "RetryLater"),
    "tailrace.delivery.retry": ("Retry",),
    "tailrace.group.group": ("Group",),
    "tailrace.hub.topic": ("Topic",),
    "tailrace.hub.dead_letters": ("DeadLetters", "SubscriptionLetter"),
    "tailrace.hub.hub": ("Hub",),
    "tailrace.hub.opening": ("open",),
    "tailrace.hub.queue": ("Queue", "QueueConsumer"),
    "tailrace.hub.replay": ("Replay",),
    "tailrace.hub.subscription": ("Subscription",),
    "tailrace.queue.effects.sql_effects": ("SqlEffects",),
    "tailrace.queue.replay.job": ("ReplayState",),
    "tailrace.queue.replay.progress": ("ReplayProgress",),
    "tailrace.queue.stats": ("MessageCounts", "QueueStats"),
    "tailrace.topic.envelope": ("Envelope",),
    "tailrace.subscription.store.describe": ("SubscriptionInfo",),
    "tailrace.subscription.store.group_state": ("GroupStates",),
    "tailrace.subscription.store.key_state": ("AttemptFailure", "KeyState", "KeyStatus"),
    "tailrace.subscription.store.message_state": ("MessagePlace",),
    "tailrace.subscription.store.requests.making": ("MadeRequest",),
    "tailrace.subscription.store.reset.plan": ("PartitionReset", "ResetPlan"),
    "tailrace.subscription.worker.worker": ("Worker", "WorkerStats"),
    "tailrace.message": (
        "Message", "Mode", "Op", "Partition", "Position", "Range", "Receipt", "Receipts",
    ),
    "tailrace.operations.metrics.hub_metrics": ("serve_metrics",),
    "tailrace.operations.metrics.server": ("MetricsServer",),
    "tailrace.pipeline.pipeline": ("Pipeline",),
    "tailrace.pipeline.report": ("RunOutcome", "RunProgress", "RunReport", "WriterReport"),
    "tailrace.pipeline.writer_status": ("WriterStatus",),
    "tailrace.settings": ("HubSettings",),
    "tailrace.source.report": (
        "NamespaceProgress", "NamespaceState", "SourceOutcome", "SourceProgress", "SourceReport",
    ),
    "tailrace.source.source": ("Source",),
    "tailrace.topic.pending": ("Pending",),
    "tailrace.topic.producer": ("Producer",),
    "tailrace.topic.scaling": ("Plan",),
    "tailrace.topic.storage_topics": ("StorageTopicInfo",),
    "tailrace.topic.trimming": ("Trim",),
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
