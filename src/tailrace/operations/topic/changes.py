"""Changes of a topic that cannot be undone. Each has a plan, and a function that applies it.

Every change is audited.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.amount import format_amount
from tailrace.backend.contract import Amount
from tailrace.group.store.definition import group_of_consumer
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.operations.audit import append_audit, audit_entry
from tailrace.operations.explanation import Fact
from tailrace.operations.pipeline.lookup import runner
from tailrace.operations.plan import ChangePlan
from tailrace.operations.subscription.topic_effects import deletion_facts, effect_facts
from tailrace.operations.topic.describe import topic_amount
from tailrace.operations.topic.lookup import find_topic
from tailrace.pipeline.catalog import RegisteredPipeline, pipelines
from tailrace.subscription.store.names import replay_of, subscription_of
from tailrace.topic.composite import Definition
from tailrace.topic.consumers import consumers
from tailrace.topic.ledger import Progress
from tailrace.topic.record_count import amount_left
from tailrace.topic.scaling import Plan
from tailrace.topic.trimming import check_finished


def plan_scale(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Return the plan of `scale`."""
    topic = find_topic(hub, name)
    plan = topic.plan_scale(partitions, any_count=any_count)
    return _change_plan(hub, topic, plan, topic.view.definition)


def scale(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Change the number of partitions of a topic. Return the plan that was applied."""
    topic = find_topic(hub, name)
    before = topic.view.definition
    plan = _change_plan(hub, topic, topic.scale(partitions, any_count=any_count), before)
    if plan.changes:
        done = f"scaled to {format_amount(partitions, 'partition')}"
        _audit(hub, "topic scale", topic, before, done)
    return plan


def plan_add_storage(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Return the plan of `add_storage`."""
    topic = find_topic(hub, name)
    now = topic.view.definition
    after = now.added(partitions, any_count=any_count)
    count = format_amount(partitions, "partition")
    return ChangePlan(
        name,
        True,
        f"{name}: append storage {after.last} with {count}",
        (
            *_uses(hub, name),
            *effect_facts(hub, name, now.scaled(partitions, any_count=any_count)),
            Fact("pushes", f"stay at storage {now.pointer} until: tailrace topic switch {name}"),
            Fact("undo", "none; the storage topic stays until it is finished and trimmed"),
        ),
    )


def add_storage(hub: Hub, name: str, partitions: int, *, any_count: bool) -> ChangePlan:
    """Append a storage topic without switching pushes to it. Return the plan that was applied."""
    plan = plan_add_storage(hub, name, partitions, any_count=any_count)
    topic = find_topic(hub, name)
    before = topic.view.definition
    added = topic.add_storage_topic(partitions, any_count=any_count)
    done = f"added storage {added} with {format_amount(partitions, 'partition')}"
    _audit(hub, "topic add-storage", topic, before, done)
    return plan


def plan_switch(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `switch`. At the last storage topic there is nothing to do."""
    now = find_topic(hub, name).view.definition
    if now.pointer == now.last:
        summary = (
            f"{name}: storage {now.pointer} is the last storage topic, nothing to switch to; "
            f"add one first: tailrace topic add-storage {name} {now.shape.partitions}"
        )
        return ChangePlan(name, False, summary)
    to = now.pointer + 1
    before = format_amount(now.shape.partitions, "partition")
    after = format_amount(now.storage[to].partitions, "partition")
    return ChangePlan(
        name,
        True,
        f"{name}: switch pushes from storage {now.pointer} ({before}) to storage {to} ({after})",
        (
            *_uses(hub, name),
            *effect_facts(hub, name, now.switched()),
            *_unread(hub, find_topic(hub, name)),
            Fact("sealed", f"storage {now.pointer}, permanently; consumers finish it first"),
            Fact("undo", "none"),
        ),
    )


def switch(hub: Hub, name: str) -> ChangePlan:
    """Switch pushes to the next storage topic. Return the plan that was applied."""
    plan = plan_switch(hub, name)
    topic = find_topic(hub, name)
    before = topic.view.definition
    pointer = topic.switch_produce()
    if pointer != before.pointer:
        _audit(hub, "topic switch", topic, before, f"switched pushes to storage {pointer}")
    return plan


def plan_trim(hub: Hub, name: str, before: int, *, force: bool) -> ChangePlan:
    """Return the plan of `trim`. Raise `InvalidValue` if messages would be lost unread, unless
    `force`."""
    topic = find_topic(hub, name)
    found = topic.plan_trim(before)
    if not found.storages:
        summary = f"{name}: nothing to delete before storage {before}"
        return ChangePlan(name, False, summary)
    check_finished(found, before, force=force)
    storages = ", ".join(map(str, found.storages))
    summary = (
        f"{name}: delete storage {storages} with "
        f"{format_amount(found.amount.records, 'message')} "
        f"({format_amount(found.amount.bytes, 'byte')})"
    )
    facts = (
        *(Fact(f"pipeline {pipeline.name}", role) for pipeline, role in _owners(hub, name)),
        *(
            Fact(_label(hub, each), f"loses {format_amount(count, 'message')} unread")
            for each, count in found.unread.items()
        ),
        *(() if found.consumed else (Fact("consumers", "none; nothing has read the messages"),)),
        Fact("left", f"seeks, resets and replays reach back to storage {before}"),
        Fact("undo", "none"),
    )
    return ChangePlan(name, True, summary, facts)


def trim(hub: Hub, name: str, before: int, *, force: bool) -> ChangePlan:
    """Delete the oldest storage topics of a topic. Return the plan that was applied."""
    plan = plan_trim(hub, name, before, force=force)
    topic = find_topic(hub, name)
    definition = topic.view.definition
    done = topic.trim(before, force=force)
    if done.storages:
        what = f"deleted storage {', '.join(map(str, done.storages))}"
        lost = f"; unread: {done.unread}" if done.unread else ""
        _audit(hub, "topic trim", topic, definition, f"{what}{lost}")
    return plan


def plan_delete(hub: Hub, name: str) -> ChangePlan:
    """Return the plan of `delete`."""
    topic = find_topic(hub, name)
    held = topic_amount(hub, topic)
    partitions = sum(each.partitions for each in topic.view.definition.storage_topics(name))
    summary = (
        f"{name}: delete the topic with {format_amount(held.records, 'message')} "
        f"({format_amount(held.bytes, 'byte')}) in {format_amount(partitions, 'partition')}"
    )
    facts = (
        *_pipelines(hub, name),
        *deletion_facts(hub, name),
        *_lost(hub, topic),
        Fact("undo", "none"),
    )
    return ChangePlan(name, True, summary, facts)


def delete(hub: Hub, name: str) -> ChangePlan:
    """Delete a topic with all its messages. Return the plan that was applied."""
    plan = plan_delete(hub, name)
    topic = find_topic(hub, name)
    messages = topic_amount(hub, topic).records
    before = _shape(topic.view.definition) | {"messages": messages}
    hub.delete_topic(name)
    after = {"done": f"deleted with {format_amount(messages, 'message')}"}
    append_audit(hub, audit_entry("topic delete", name, before=before, after=after))
    return plan


def _owners(hub: Hub, name: str) -> Iterator[tuple[RegisteredPipeline, str]]:
    """Yield the pipelines that a topic belongs to, and what the topic is to them."""
    for pipeline in pipelines(hub.backend.store):
        if name == pipeline.commit_log:
            yield pipeline, "its commit log"
        elif name == pipeline.dead_letters:
            yield pipeline, "its dead letters"


def _pipelines(hub: Hub, name: str) -> Iterator[Fact]:
    """Yield the pipelines that a topic belongs to, and what the deletion does to them."""
    for pipeline, role in _owners(hub, name):
        running = runner(hub, pipeline.name)
        state = "does not run" if running is None else f"runs: {running}; stop it first"
        yield Fact(f"pipeline {pipeline.name}", f"{role}; the pipeline {state}")
        if name == pipeline.commit_log:
            yield Fact(
                "reader",
                "continues after the rows that it has read; earlier rows are not read again",
            )


def _uses(hub: Hub, name: str) -> Iterator[Fact]:
    """Yield the pipelines that a topic belongs to, and what more partitions do to their order."""
    for pipeline, role in _owners(hub, name):
        order = "rows of one identity or namespace keep their order, others need not"
        what = f"{role}; {order}" if name == pipeline.commit_log else role
        yield Fact(f"pipeline {pipeline.name}", what)


def _unread(hub: Hub, topic: Topic[Any]) -> Iterator[Fact]:
    """Yield the messages that each consumer has not acknowledged."""
    for fact, messages in _lags(hub, topic):
        yield Fact(fact, f"has {messages} of the topic unread")


def _lost(hub: Hub, topic: Topic[Any]) -> Iterator[Fact]:
    """Yield the messages that each consumer loses with the topic."""
    for fact, messages in _lags(hub, topic):
        done = "delivered" if fact.startswith("writer ") else "acknowledged"
        yield Fact(fact, f"has not {done} {messages}, which will be lost")


def _lags(hub: Hub, topic: Topic[Any]) -> Iterator[tuple[str, str]]:
    """Yield the consumers that have not acknowledged every message of a topic, and the number of
    these messages."""
    log, table = hub.backend.log, hub.backend.table
    for consumer in consumers(hub.backend.store, topic.name):
        if replay_of(subscription_of(consumer) or "") is not None:
            continue
        left = Amount()
        for storage in topic.storage_topics:
            for number in range(storage.partitions):
                where = Partition(topic.name, storage.index, number)
                left = left.plus(amount_left(log, where, Progress.load(table, consumer, where)))
        if not left.records:
            continue
        yield _label(hub, consumer), format_amount(left.records, "message")


def _label(hub: Hub, consumer: str) -> str:
    """Return the name of a consumer of a topic, with its kind."""
    if (group := group_of_consumer(consumer)) is not None:
        return f"group {group}"
    if (subscription := subscription_of(consumer)) is not None:
        return f"{'queue' if subscription in hub.queues() else 'subscription'} {subscription}"
    return f"writer {consumer}"


def _audit(hub: Hub, command: str, topic: Topic[Any], before: Definition, done: str) -> None:
    after = _shape(topic.view.definition) | {"done": done}
    entry = audit_entry(command, topic.name, before=_shape(before), after=after)
    append_audit(hub, entry)


def _shape(definition: Definition) -> dict[str, Any]:
    """Return the shape of a topic for the audit."""
    return {
        "partitions": [shape.partitions for shape in definition.storage],
        "pushes_to_storage": definition.pointer,
        **({"deleted_storage": list(definition.deleted)} if definition.deleted else {}),
    }


def _change_plan(hub: Hub, topic: Topic[Any], plan: Plan, before: Definition) -> ChangePlan:
    """Return the plan of a scaling, with what it means for the consumers of the topic.

    `before` is the definition of the topic without the scaling.
    """
    changes = plan.after != plan.before
    facts = [Fact(*each) for each in plan.consequences]
    if changes:
        after = before.scaled(plan.after.partitions, any_count=True)
        effects = effect_facts(hub, topic.name, after)
        facts = [*_uses(hub, topic.name), *effects, *facts[:-1], *_unread(hub, topic), facts[-1]]
    return ChangePlan(plan.topic, changes, plan.summary, tuple(facts))
