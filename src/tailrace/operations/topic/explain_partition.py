"""The state of a partition for each consumer of its topic, and commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.group.store.describe import GroupDetail, GroupPartition
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.group.health import groups_of
from tailrace.operations.group.partition_state import judge_partition
from tailrace.operations.group.stuck import (
    describe_failed,
    failed_state,
    silent_owner,
    skip_command,
)
from tailrace.operations.subscription.message_verdict import delivering
from tailrace.operations.subscription.partition_verdict import judge_subscribed_partition
from tailrace.operations.topic.lookup import find_topic

_FAILED_MAX: Final = 3
"""Number of failed messages that are listed."""


def explain_partition(hub: Hub, partition: Partition) -> Explanation:
    """Explain a partition. Raise `UnknownTopic` or `InvalidValue` if there is none, and
    `StorageDeleted` if there is none any more."""
    definition = find_topic(hub, partition.topic).view.definition
    definition.check_held(partition)
    start, end, sealed = hub.backend.log.bounds(partition)
    facts = [Fact("holds", _holds(start, end, sealed))]
    if follows := sorted(definition.follows(partition)):
        facts.append(Fact("follows", ", ".join(map(str, follows))))
    if partition.storage > definition.pointer:
        headline = f"UNUSED: pushes to {partition.topic} go to storage {definition.pointer}"
        switch = Remedy("switch", f"tailrace topic switch {partition.topic}")
        return Explanation(str(partition), False, headline, tuple(facts), (switch,))
    waits, remedies, headlines = False, [], []
    for group in groups_of(hub, partition.topic):
        by_name = {each.partition: each for each in group.partitions}
        consumed = by_name[str(partition)]
        # A followed partition is absent if its topic was deleted and created again.
        before = [by_name[str(where)] for where in follows if str(where) in by_name]
        health = judge_partition(hub, group, consumed, before)
        headlines.append(f"{health.state} for {group.summary.name}")
        facts += [Fact(group.summary.name, each) for each in (health.why, *_failed(consumed))]
        if consumed.lag:
            waits = True
            remedies.append(Remedy("lag", f"tailrace lag {group.summary.name}"))
        remedies += _remedies(hub, consumed, group)
    for name in delivering(hub, partition.topic):
        verdict = judge_subscribed_partition(hub, name, partition)
        headlines.append(f"{verdict.state} for {name}")
        facts.append(Fact(name, verdict.why))
        remedies += verdict.remedies
        waits = waits or verdict.waits
    if not headlines:
        state = "SEALED" if sealed else "OPEN"
        headlines = [f"{state}, nothing consumes it"]
    return Explanation(str(partition), waits, ", ".join(headlines), tuple(facts), tuple(remedies))


def _holds(start: int, end: int, sealed: bool) -> str:
    held = "no messages" if start == end else f"offsets {start:,} to {end - 1:,}"
    return f"{held}; sealed, so no message will be added" if sealed else held


def _failed(partition: GroupPartition) -> Iterator[str]:
    """Yield a sentence for each failed message, the lowest offsets first."""
    for failed in partition.failed[:_FAILED_MAX]:
        yield f"{failed_state(failed, partition)}: {describe_failed(failed, partition)}"
    if len(partition.failed) > _FAILED_MAX:
        yield f"{len(partition.failed) - _FAILED_MAX:,} more failed"


def _remedies(hub: Hub, partition: GroupPartition, group: GroupDetail) -> Iterator[Remedy]:
    name = group.summary.name
    if silent := silent_owner(hub, group, partition):
        outcome = f"{silent.process} is stopped or disconnected: resume or end it"
        yield Remedy("owner", f"tailrace group show {name}", outcome)
    for failed in partition.failed[:_FAILED_MAX]:
        outcome = "skips the message" + ("" if failed.key is None else "; its key continues")
        yield Remedy("skip", skip_command(name, failed), outcome)
