"""Explaining the state of a topic, group, partition, message, pipeline or writer."""

from __future__ import annotations

from dataclasses import replace

from tailrace.errors import InvalidValue
from tailrace.group.store.definition import group_names
from tailrace.hub.hub import Hub
from tailrace.message import Partition, Position
from tailrace.operations.explanation import Explanation, Remedy
from tailrace.operations.group.explain_group import explain_group
from tailrace.operations.pipeline.explain_pipeline import explain_pipeline
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.operations.pipeline.lookup import writer_names
from tailrace.operations.topic.explain_message import explain_message
from tailrace.operations.topic.explain_partition import explain_partition
from tailrace.operations.topic.explain_topic import explain_topic
from tailrace.pipeline.catalog import pipelines
from tailrace.suggestion import did_you_mean


def explain(hub: Hub, subject: str) -> Explanation:
    """Explain a topic, ``orders``, a group, ``billing``, a partition, ``orders/1.7``, a message by
    its position, ``orders/1.7@42``, a pipeline, ``lake``, or a writer, ``lake/crm``.

    A name that several have means the topic, else the group, and the explanation has commands for
    the others. Raise `InvalidValue` for anything else.
    """
    if "@" in subject:
        return explain_message(hub, Position.parse(subject))
    if "/" in subject:
        try:
            partition = Partition.parse(subject)
        except InvalidValue:
            return explain_writer(hub, subject)
        return explain_partition(hub, partition)
    topics, groups = hub.topics(), group_names(hub.backend)
    known = [each.name for each in pipelines(hub.backend.store)]
    others = []
    if subject in groups:
        command = f"tailrace explain {subject} --group"
        others.append(Remedy("group", command, "the group of this name"))
    if subject in known:
        command = f"tailrace pipeline status {subject}"
        others.append(Remedy("pipeline", command, "the pipeline of this name"))
    if subject in topics:
        return _with(explain_topic(hub, subject), others)
    if subject in groups:
        return _with(explain_group(hub, subject), others[1:])
    if subject in known:
        return explain_pipeline(hub, subject)
    valid = "a topic, group, partition, message, pipeline or writer, for example orders, billing"
    remedy = did_you_mean(subject, [*topics, *groups, *known, *writer_names(hub)])
    problem = f"no topic, group or pipeline {subject!r} in {hub.backend.name}"
    raise InvalidValue(
        "subject", subject, f"{valid}, orders/1.7, orders/1.7@42, lake, lake/crm", remedy, problem
    )


def _with(found: Explanation, others: list[Remedy]) -> Explanation:
    """Return an explanation with the commands for others that have the same name."""
    commands = {each.command for each in others}
    kept = [each for each in found.remedies if each.command not in commands]
    return replace(found, remedies=(*kept, *others))
