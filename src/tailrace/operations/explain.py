"""Explaining the state of a topic, a consumer, a partition or a message."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tailrace.errors import InvalidValue
from tailrace.group.store.definition import group_names
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations.explanation import Explanation, Remedy
from tailrace.operations.group.explain_group import explain_group
from tailrace.operations.pipeline.explain_pipeline import explain_pipeline
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.operations.pipeline.lookup import writer_names
from tailrace.operations.source.explain_source import explain_source
from tailrace.operations.subscription.explain_subscription import (
    explain_shard,
    explain_subscription,
)
from tailrace.operations.topic.explain_message import explain_message
from tailrace.operations.topic.explain_partition import explain_partition
from tailrace.operations.topic.explain_topic import explain_topic
from tailrace.pipeline.catalog import pipelines
from tailrace.source.catalog import source_names
from tailrace.subscription.store.names import ShardName
from tailrace.suggestion import did_you_mean

_OTHERS: Final = {
    "group": "tailrace explain {} --group",
    "subscription": "tailrace explain {} --subscription",
    "pipeline": "tailrace pipeline status {}",
    "source": "tailrace source status {}",
}
"""The commands that explain what is not a topic, by its kind."""


def explain(hub: Hub, subject: str) -> Explanation:
    """Explain a topic, ``orders``, a queue, ``jobs``, a group, ``billing``, a subscription,
    ``mailer``, a partition, ``orders/1.7``, a message by its position, ``orders/1.7@42``, a
    pipeline, ``lake``, a writer, ``lake/crm``, a source, ``shop``, or a shard of a subscription,
    ``mailer/0.3``.

    A name that several have means the queue, else the topic, else the group, and the explanation
    has commands for the others. Raise `InvalidValue` for anything else.
    """
    if "@" in subject:
        return explain_message(hub, Position.parse(subject))
    if "/" in subject:
        return _explain_part(hub, subject)
    if subject in hub.queues():  # its topic and its subscription have the same name
        others = [Remedy("topic", f"tailrace topic show {subject}", "where its messages are")]
        if subject in group_names(hub.backend):
            others.append(Remedy("group", _OTHERS["group"].format(subject), "of this name"))
        return _with(explain_subscription(hub, subject), others)
    explained = {
        "topic": (hub.topics(), explain_topic),
        "group": (group_names(hub.backend), explain_group),
        "subscription": (hub.subscriptions(), explain_subscription),
        "pipeline": ([each.name for each in pipelines(hub.backend.store)], explain_pipeline),
        "source": (source_names(hub.backend.store), explain_source),
    }
    kinds = [kind for kind, (names, _) in explained.items() if subject in names]
    if kinds:
        others = [
            Remedy(kind, _OTHERS[kind].format(subject), f"the {kind} of this name")
            for kind in kinds[1:]
        ]
        return _with(explained[kinds[0]][1](hub, subject), others)
    known = [name for names, _ in explained.values() for name in names]
    valid = "a topic, group, subscription, pipeline, writer, source, partition or message"
    examples = "for example orders, billing, mailer, lake, lake/crm, orders/1.7, orders/1.7@42"
    remedy = did_you_mean(subject, [*known, *writer_names(hub)])
    problem = f"no topic, group, subscription, pipeline or source {subject!r} in {hub.backend.name}"
    raise InvalidValue("subject", subject, f"{valid}, {examples}", remedy, problem)


def _explain_part(hub: Hub, subject: str) -> Explanation:
    """Explain a partition, the shard of a subscription, or a writer."""
    try:
        partition = Partition.parse(subject)
    except InvalidValue:
        return explain_writer(hub, subject)
    if partition.topic not in hub.topics() and partition.topic in hub.subscriptions():
        return explain_shard(hub, partition.topic, ShardName(partition.storage, partition.number))
    return explain_partition(hub, partition)


def _with(found: Explanation, others: list[Remedy]) -> Explanation:
    """Return an explanation with the commands for others that have the same name."""
    commands = {each.command for each in others}
    kept = [each for each in found.remedies if each.command not in commands]
    return replace(found, remedies=(*kept, *others))
