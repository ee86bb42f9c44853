"""A group explained: its state, size and lag, owners, what blocks it, and commands that help."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.amount import format_amount
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import TopicFilter, matching_topics
from tailrace.group.store.describe import GroupDetail, GroupPartition, lag, show_group
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.dead_letters.mailboxes import count_group_letters
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.group.health import (
    GroupState,
    judge,
    partitions_of,
    unfinished,
)
from tailrace.operations.group.stuck import (
    FailedState,
    describe_failed,
    failed_state,
    skip_command,
)
from tailrace.operations.health import time_text
from tailrace.topic.view import find

LISTED_MAX: Final = 5
"""Number of failed messages, of consumers and of partitions that are listed."""

_FACTS: Final = {
    FailedState.STUCK: "blocked",
    FailedState.RETRYING: "retrying",
    FailedState.UNATTENDED: "failed",
}


def explain_group(hub: Hub, name: str) -> Explanation:
    """Explain a group. Raise `UnknownGroup` if there is none."""
    group = show_group(hub.backend, name)
    health = judge(hub, group)
    facts = [*_size(hub, group), *_lag(hub, group), *_owners(group)]
    facts += [*blocked_facts(group, None), *waiting_facts(hub, group, None)]
    remedies = list(group_remedies(group, health.state, None))
    if letters := count_group_letters(hub, name):
        facts.append(Fact("set aside", format_amount(letters, "pending dead letter")))
        remedies.append(Remedy("dead letters", f"tailrace dlq {name} list --by error"))
    return Explanation(name, health.waits, health.text, tuple(facts), tuple(remedies))


def blocked_facts(group: GroupDetail, topic: str | None) -> Iterator[Fact]:
    """Yield the failed messages of a group, the oldest first, with the time of the failure."""
    failed = [(each, where) for where in partitions_of(group, topic) for each in where.failed]
    failed.sort(key=lambda pair: pair[0].time)
    for each, where in failed[:LISTED_MAX]:
        what = f"since {time_text(each.time)}: {describe_failed(each, where)}"
        yield Fact(_FACTS[failed_state(each, where)], what)
    if len(failed) > LISTED_MAX:
        yield Fact("blocked", f"{len(failed) - LISTED_MAX:,} more failed messages")


def waiting_facts(hub: Hub, group: GroupDetail, topic: str | None) -> Iterator[Fact]:
    """Yield the partitions that others wait for, to keep the order of each key."""
    partitions = {each.partition: each for each in partitions_of(group, topic)}
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for each in partitions.values():
        if each.state is UnitState.WAITING:
            for before in _follows(hub, Partition.parse(each.partition)):
                if before in partitions and unfinished(partitions[before]):
                    waiting[before].append(each.partition)
    for before, names in list(waiting.items())[:LISTED_MAX]:
        verb = "waits" if len(names) == 1 else "wait"
        held = partitions[before]
        yield Fact("waits", f"{_listed(names)} {verb} for {before} (lag {held.lag:,})")
    if len(waiting) > LISTED_MAX:
        yield Fact("waits", f"for {len(waiting) - LISTED_MAX:,} more partitions")


def group_remedies(group: GroupDetail, state: GroupState, topic: str | None) -> Iterator[Remedy]:
    """Yield the commands that help a group in a state."""
    name, chosen = group.summary.name, partitions_of(group, topic)
    for failed in [each for partition in chosen for each in partition.failed][:LISTED_MAX]:
        outcome = "skips the message" + ("" if failed.key is None else "; its key continues")
        yield Remedy("skip", skip_command(name, failed), outcome)
    if state is GroupState.SILENT:
        outcome = "names the process: resume or end it"
        yield Remedy("owner", f"tailrace group show {name}", outcome)
    if state is GroupState.UNATTENDED:
        outcome = "or start your program that consumes it"
        where = shlex.quote(group.summary.filter)
        yield Remedy("consume", f"tailrace tail {where} --group {name}", outcome)
        yield Remedy("discard", f"tailrace group seek {name} latest", "skips every message")
    if state is GroupState.TOPIC_DELETED or (state is GroupState.UNATTENDED and topic is None):
        yield Remedy("delete", f"tailrace group delete {name}", "if it will not come back")
    if state in (GroupState.CONSUMING, GroupState.BLOCKED, GroupState.RETRYING):
        yield Remedy("watch", f"tailrace lag {name} --watch")


def _size(hub: Hub, group: GroupDetail) -> Iterator[Fact]:
    topics = len(matching_topics(hub.backend, TopicFilter(group.summary.filter)))
    states = [
        f"{count:,} {state.value}"
        for state in UnitState
        if (count := sum(each.state is state for each in group.partitions))
    ]
    partitions = format_amount(len(group.partitions), "partition")
    what = f"{group.summary.filter}: {format_amount(topics, 'topic')}, {partitions}"
    yield Fact("consumes", f"{what} ({', '.join(states)})" if states else what)


def _lag(hub: Hub, group: GroupDetail) -> Iterator[Fact]:
    behind = [each for each in lag(hub.backend, group.summary.name) if each.lag]
    if not behind:
        yield Fact("lag", "none: every message is acknowledged")
        return
    oldest = min((each.oldest for each in behind if each.oldest is not None), default=None)
    total = format_amount(sum(each.lag for each in behind), "message")
    parts = format_amount(len(behind), "partition")
    most = behind[0]
    where = (
        f"{parts}, most in {most.partition} ({most.lag:,})" if len(behind) > 1 else most.partition
    )
    since = "" if oldest is None else f"; the oldest is of {time_text(oldest)}"
    yield Fact("lag", f"{total} in {where}{since}")


def _owners(group: GroupDetail) -> Iterator[Fact]:
    if group.leader is not None:
        yield Fact("leader", f"{group.leader}, term {group.term}")
    owned: defaultdict[str, list[GroupPartition]] = defaultdict(list)
    for each in group.partitions:
        if each.owner is not None and unfinished(each):
            owned[each.owner].append(each)
    for consumer in group.consumers[:LISTED_MAX]:
        mine = owned[consumer.id]
        names = _listed([each.partition for each in mine])
        total = sum(each.lag for each in mine)
        what = f"owns {names} (lag {total:,})" if mine else "stands by without a partition"
        yield Fact("consumer", f"{consumer.id} {what}; {consumer.process}")
    if len(group.consumers) > LISTED_MAX:
        yield Fact("consumer", f"{len(group.consumers) - LISTED_MAX:,} more")
    free = [
        each.partition
        for each in group.partitions
        if each.owner is None and each.state is UnitState.OPEN
    ]
    if free and group.consumers:
        yield Fact("free", f"{_listed(free)}: about to be granted to a consumer")


def _follows(hub: Hub, partition: Partition) -> list[str]:
    stored = find(hub.backend, partition.topic)
    if stored is None:
        return []
    return [str(each) for each in sorted(stored.definition.follows(partition))]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED_MAX
    return ", ".join(names[:LISTED_MAX]) + (f" and {more:,} more" if more > 0 else "")
