"""A message explained by its position: what it is, and what each consumer has done with it."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.amount import format_amount
from tailrace.clock import utc_time
from tailrace.group.store.definition import consumer_name
from tailrace.group.store.describe import GroupDetail, GroupPartition
from tailrace.group.store.failed_messages import FailedMessage
from tailrace.hub.hub import Hub
from tailrace.log.record import Record
from tailrace.log.redelivered import FOR, origin_of
from tailrace.message import MODE_NAMES, OP_NAMES, Mode, Op, Partition, Position
from tailrace.operations.dead_letters.mailboxes import find_group_letter
from tailrace.operations.explanation import Explanation, Fact, Remedy, Verdict
from tailrace.operations.group.health import groups_of
from tailrace.operations.group.partition_state import judge_partition
from tailrace.operations.group.stuck import describe_failed, failed_state, skip_command
from tailrace.operations.health import time_text
from tailrace.operations.pipeline.describe import shown_state
from tailrace.operations.pipeline.lookup import read_ledger, runner
from tailrace.operations.subscription.message_verdict import judge_message, subscriptions_with
from tailrace.operations.topic.lookup import find_topic
from tailrace.operations.topic.message_view import text_of
from tailrace.pipeline.catalog import pipelines
from tailrace.pipeline.writing.writer_ledger import WriterName
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import record_at


def explain_message(hub: Hub, position: Position) -> Explanation:
    """Explain the message at a position.

    Raise `UnknownTopic`, `InvalidValue` or `OutOfRange` if there is none.
    """
    definition = find_topic(hub, position.topic).view.definition
    where = definition.check_held(Partition(*position[:3]), position.offset)
    record = record_at(hub.backend.log, where, position.offset)
    facts = list(_facts(record))
    verdicts = {
        group.summary.name: _judge(hub, group, position, record)
        for group in groups_of(hub, position.topic)
    }
    for name in subscriptions_with(hub, position.topic):
        label = f"subscription {name}" if name in verdicts else name
        verdicts[label] = judge_message(hub, name, position)
    for pipeline in pipelines(hub.backend.store):
        if pipeline.commit_log == position.topic:
            names = [WriterName(pipeline.name, writer) for writer in pipeline.writers]
            verdicts |= {str(name): _judge_writer(hub, name, position) for name in names}
    facts += [Fact(name, verdict.why) for name, verdict in verdicts.items()]
    remedies = [each for verdict in verdicts.values() for each in verdict.remedies]
    states = [f"{verdict.state} for {name}" for name, verdict in verdicts.items()]
    headline = ", ".join(states) or "STORED, nothing consumes its topic"
    waits = any(verdict.waits for verdict in verdicts.values())
    return Explanation(str(position), waits, headline, tuple(facts), tuple(remedies))


def _facts(record: Record) -> Iterator[Fact]:
    yield Fact("key", "none" if record.key is None else repr(text_of(record.key)))
    size = format_amount(len(record.value), "byte")
    yield Fact("message", f"{size}, of {time_text(utc_time(record.timestamp))}")
    if record.mode == Mode.COMPLETE or record.op >= Op.COMMAND:
        kind = f"{OP_NAMES[record.op]} ({MODE_NAMES[record.mode]})"
        yield Fact("control", f"{kind}; groups receive it only if they ask for control records")
    headers = record.headers or {}
    if FOR in headers:
        origin = origin_of(headers)
        first = "" if origin is None else f"; it was {origin} at first"
        yield Fact("redelivered", f"a dead letter, for {text_of(headers[FOR])} alone{first}")


def _judge(hub: Hub, group: GroupDetail, position: Position, record: Record) -> Verdict:
    """Return what a group has done with a message, or what the message waits for."""
    name, where = group.summary.name, Partition(*position[:3])
    addressee = (record.headers or {}).get(FOR)
    if addressee is not None and addressee != name.encode():
        return Verdict("LEFT OUT", f"only {text_of(addressee)} receives it", waits=False)
    progress = Progress.load(hub.backend.table, consumer_name(name), where)
    if progress.acked(position.offset):
        return _acknowledged(hub, group, position)
    partition = next(each for each in group.partitions if each.partition == str(where))
    health = judge_partition(hub, group, partition, _followed(hub, group, where))
    failed = next((each for each in partition.failed if each.position == str(position)), None)
    if failed is not None:
        skip = Remedy("skip", skip_command(name, failed), "skips the message")
        state = failed_state(failed, partition).upper() if health.state.delivers else health.state
        return Verdict(state, describe_failed(failed, partition), (skip,))
    if not health.state.delivers:
        why = f"not acknowledged; {where}: {health.why}"
        return Verdict(health.state, why, (Remedy("partition", f"tailrace explain {where}"),))
    if (before := _failed_before(partition, position, record)) is not None:
        why = f"of the same key as {describe_failed(before, partition)}"
        return Verdict("WAITING", why, (Remedy("skip", skip_command(name, before)),))
    return _pending(partition, progress, position.offset)


def _acknowledged(hub: Hub, group: GroupDetail, position: Position) -> Verdict:
    name = group.summary.name
    if (letter := find_group_letter(hub, name, str(position))) is not None:
        again = Remedy("redeliver", f"tailrace dlq {name} redeliver {letter.position}")
        why = f"set aside as {letter.position}; {letter.error}"
        return Verdict("DEAD LETTER", why, (again,))
    why = "handled or skipped"
    if group.start != "earliest":
        why += f", or before the start of the group ({group.start})"
    return Verdict("ACKNOWLEDGED", why, waits=False)


def _failed_before(
    partition: GroupPartition, position: Position, record: Record
) -> FailedMessage | None:
    """Return the failed message of the same key before this one, if there is one."""
    if record.key is None:
        return None
    key = text_of(record.key)
    for failed in partition.failed:
        if failed.key == key and Position.parse(failed.position).offset < position.offset:
            return failed
    return None


def _pending(partition: GroupPartition, progress: Progress, offset: int) -> Verdict:
    """Return that a message is in flight or waits for its turn, as far as the ledger knows."""
    before = sum(end - start for start, end in progress.holes(offset))
    where = f"; owner {partition.owner}"
    if not before:
        return Verdict("PENDING", f"in flight, or the next to be delivered{where}")
    unread = format_amount(before, "offset")
    return Verdict("PENDING", f"in flight, or behind {unread} that the owner handles first{where}")


def _judge_writer(hub: Hub, name: WriterName, position: Position) -> Verdict:
    """Return what a writer has done with a record of its commit log."""
    where, offset = Partition(*position[:3]), position.offset
    ledger = read_ledger(hub, name, find_topic(hub, position.topic))
    if ledger.skipped[where].acked(offset):
        return Verdict("SKIPPED", "parked as a dead letter, or skipped by an operator", waits=False)
    if ledger.progress[where].acked(offset):
        return Verdict("DELIVERED", "written, or left out by its filter or functions", waits=False)
    more = (Remedy("writer", f"tailrace explain {name}"),)
    if ledger.state.position == str(position):
        return Verdict("FAILED", ledger.state.error or "", more)
    state = shown_state(ledger.state.state, runner(hub, name.pipeline))
    return Verdict("PENDING", f"not written yet; the writer is {state}", more)


def _followed(hub: Hub, group: GroupDetail, where: Partition) -> list[GroupPartition]:
    """Return the partitions of a group that a partition has to wait for."""
    names = set(map(str, find_topic(hub, where.topic).view.definition.follows(where)))
    return [each for each in group.partitions if each.partition in names]
