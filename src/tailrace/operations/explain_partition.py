"""What a partition's messages wait for, for each group that shares its topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tailrace.amount import format_amount
from tailrace.group.definition import TopicFilter, group_names, read_group
from tailrace.group.unit import UnitState
from tailrace.group.view import GroupDetail, GroupStream, show_group
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Explanation, Fact, Remedy
from tailrace.operations.standstill import silent_owner, skip_command, tell_failed
from tailrace.operations.topics import find_topic

_TOLD_MAX: Final = 3


def explain_partition(hub: Hub, partition: Partition) -> Explanation:
    """Explain a partition; `UnknownTopic` or `InvalidValue` when there is none."""
    definition = find_topic(hub, partition.topic).view.definition
    definition.check_partition(partition)
    start, end, sealed = hub.backend.log.bounds(partition)
    facts = [Fact("holds", _holds(start, end, sealed))]
    if follows := sorted(definition.follows(partition)):
        facts.append(Fact("follows", ", ".join(map(str, follows))))
    if partition.storage > definition.pointer:
        headline = f"AHEAD: pushes to {partition.topic} do not go there yet"
        switch = Remedy("switch", f"tailrace topic switch {partition.topic}")
        return Explanation(str(partition), False, headline, tuple(facts), (switch,))
    waits, remedies, headlines = False, [], []
    for group in _groups(hub, partition.topic):
        mine = {stream.partition: stream for stream in group.streams}
        stream = mine[str(partition)]
        before = [mine[str(where)] for where in follows if str(where) in mine]  # or it is deleted
        state, why = _why(hub, stream, before, group)
        headlines.append(f"{state} for {group.summary.name}")
        facts += [Fact(group.summary.name, each) for each in (why, *_held_up(stream))]
        if stream.behind:
            waits = True
            remedies.append(Remedy("look", f"tailrace lag {group.summary.name}"))
        remedies += _helps(hub, stream, group)
    if not headlines:
        state = "SEALED" if sealed else "OPEN"
        return Explanation(
            str(partition), False, f"{state}, and no group shares it", tuple(facts), ()
        )
    return Explanation(str(partition), waits, ", ".join(headlines), tuple(facts), tuple(remedies))


def _holds(start: int, end: int, sealed: bool) -> str:
    if start == end:
        return "nothing, and is sealed: there is nothing to come" if sealed else "nothing so far"
    last = "; it is sealed, so that is all" if sealed else ""
    return f"offsets {start:,} to {end - 1:,}{last}"


def _groups(hub: Hub, topic: str) -> Iterator[GroupDetail]:
    for name in group_names(hub.backend):
        if TopicFilter(read_group(hub.backend, name).definition.filter).matches(topic):
            yield show_group(hub.backend, name)


def _why(
    hub: Hub, stream: GroupStream, follows: list[GroupStream], group: GroupDetail
) -> tuple[str, str]:
    """The state of a stream in a word, and what it waits for in a sentence."""
    behind = f"{format_amount(stream.behind, 'message')} behind"
    if stream.state is UnitState.FINISHED:
        return "FINISHED", "all of it is acknowledged"
    if stream.state is UnitState.WAITING:
        unfinished = [each for each in follows if each.state is not UnitState.FINISHED]
        names = ", ".join(f"{each.partition} ({each.behind:,} behind)" for each in unfinished)
        if not unfinished:
            return "WAITING", f"an operator is sending the group elsewhere; {behind}"
        return "WAITING", f"{behind}; begins when {names} is finished, so that order holds"
    if stream.owner is not None:
        owned = f"{behind}; {stream.owner} has it, epoch {stream.epoch}"
        if silent := silent_owner(hub, group, stream):
            return "SILENT", f"{owned}, and gave no sign of life for {silent.silent_s:.0f} s"
        return "STUCK" if stream.failed else "CONSUMED", owned
    if not group.consumers:
        return "UNATTENDED", f"{behind}; no consumer of the group runs"
    return "FREE", f"{behind}; it is about to be granted to a consumer"


def _held_up(stream: GroupStream) -> Iterator[str]:
    """The messages that hold up others of their keys, the lowest of them."""
    for failed in stream.failed[:_TOLD_MAX]:
        yield f"stands still: {tell_failed(failed)}"
    if len(stream.failed) > _TOLD_MAX:
        yield f"and {len(stream.failed) - _TOLD_MAX:,} more stand still"


def _helps(hub: Hub, stream: GroupStream, group: GroupDetail) -> Iterator[Remedy]:
    name = group.summary.name
    if silent := silent_owner(hub, group, stream):
        outcome = f"{silent.process} is stopped or cut off: continue or end it"
        yield Remedy("owner", f"tailrace group show {name}", outcome)
    for failed in stream.failed[:_TOLD_MAX]:
        outcome = "passes over it" + ("" if failed.key is None else ", and its key goes on")
        yield Remedy("skip", skip_command(name, failed), outcome)
