"""A topic explained: its size, who consumes it, what blocks them, and commands that help."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.amount import format_amount
from tailrace.group.store.describe import GroupDetail
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import ExplainedPart, Explanation, Fact, Remedy
from tailrace.operations.group.explain_group import blocked_facts, group_remedies, waiting_facts
from tailrace.operations.group.health import groups_of, judge
from tailrace.operations.pipeline.describe import view_pipeline
from tailrace.operations.pipeline.explain_pipeline import parts_of_log
from tailrace.operations.storage.storage_use import missing_bytes, segments_in
from tailrace.operations.subscription.explain_subscription import part_of_topic
from tailrace.operations.subscription.message_verdict import delivering
from tailrace.operations.topic.describe import TopicDetail, show_topic
from tailrace.pipeline.catalog import pipelines
from tailrace.subscription.store.describe import describe


def explain_topic(hub: Hub, name: str) -> Explanation:
    """Explain a topic. Raise `UnknownTopic` if there is none."""
    detail = show_topic(hub, name)
    damaged = list(_damaged(hub, detail))
    found = [_of_group(hub, group, name) for group in groups_of(hub, name)]
    found += [part_of_topic(hub, describe(hub.backend, each)) for each in delivering(hub, name)]
    for pipeline in pipelines(hub.backend.store):
        if pipeline.commit_log == name:
            found += parts_of_log(view_pipeline(hub, pipeline))
    facts = [*_size(detail), *(Fact("damage", f"{each} lacks committed bytes") for each in damaged)]
    remedies = [Remedy("verify", f"tailrace segment verify {each}") for each in damaged]
    for each in found:
        facts += each.facts
        remedies += each.remedies
    states = [f"{each.state} for {each.name}" for each in found]
    if damaged:
        states.insert(0, "DAMAGED")
    if not found:
        states.append(f"{'OPEN' if detail.messages else 'EMPTY'}, nothing consumes it")
    waits = bool(damaged) or any(each.waits for each in found)
    return Explanation(name, waits, ", ".join(states), tuple(facts), tuple(remedies))


def _size(detail: TopicDetail) -> Iterator[Fact]:
    [current] = (each for each in detail.storage if each.index == detail.produce_pointer)
    held = f"{format_amount(detail.messages, 'message')} ({format_amount(detail.bytes, 'byte')})"
    yield Fact("holds", f"{held} in {format_amount(len(detail.storage), 'storage topic')}")
    partitions = format_amount(current.partitions, "partition")
    yield Fact("pushes", f"go to storage {current.index}, which has {partitions}")
    if detail.type is not None:
        yield Fact("type", detail.type.text)


def _damaged(hub: Hub, detail: TopicDetail) -> Iterator[str]:
    """Yield the partitions whose files lack committed bytes."""
    for storage in detail.storage:
        for each in storage.holds:
            if any(map(missing_bytes, segments_in(hub, Partition.parse(each.partition)))):
                yield each.partition


def _of_group(hub: Hub, group: GroupDetail, topic: str) -> ExplainedPart:
    name = group.summary.name
    health = judge(hub, group, topic)
    facts = (
        Fact(name, health.text),
        *blocked_facts(group, topic),
        *waiting_facts(hub, group, topic),
    )
    remedies = (
        *group_remedies(group, health.state, topic),
        Remedy("group", f"tailrace explain {name} --group"),
    )
    return ExplainedPart(name, health.state.value, health.waits, facts, remedies)
