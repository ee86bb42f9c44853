"""Explaining the state of a topic, group, partition or writer, with commands that help."""

from __future__ import annotations

from dataclasses import replace

from tailrace.errors import InvalidValue
from tailrace.group.store.definition import group_names
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Explanation, Remedy
from tailrace.operations.group.explain_group import explain_group
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.operations.pipeline.lookup import writer_names
from tailrace.operations.topic.explain_partition import explain_partition
from tailrace.operations.topic.explain_topic import explain_topic
from tailrace.suggestion import did_you_mean


def explain(hub: Hub, subject: str) -> Explanation:
    """Explain a topic, ``orders``, a group, ``billing``, a partition, ``orders/1.7``, or a writer,
    ``lake/crm``.

    A name that a topic and a group have means the topic. Raise `InvalidValue` for anything else.
    """
    if "/" in subject and "@" not in subject:
        try:
            partition = Partition.parse(subject)
        except InvalidValue:
            return explain_writer(hub, subject)
        return explain_partition(hub, partition)
    topics, groups = hub.topics(), group_names(hub.backend)
    if subject in topics:
        found = explain_topic(hub, subject)
        if subject not in groups:
            return found
        other = Remedy("group", f"tailrace explain {subject} --group", "the group of this name")
        kept = [each for each in found.remedies if each.command != other.command]
        return replace(found, remedies=(*kept, other))
    if subject in groups:
        return explain_group(hub, subject)
    valid = "a topic, group, partition or writer, for example orders, billing, orders/1.7, lake/crm"
    writers = writer_names(hub)
    remedy = did_you_mean(subject, [*topics, *groups, *writers])
    if any(each.startswith(f"{subject}/") for each in writers):
        remedy = f"for a pipeline: tailrace pipeline status {subject}"
    problem = f"no topic or group {subject!r} in {hub.backend.name}"
    raise InvalidValue("subject", subject, valid, remedy, problem)
