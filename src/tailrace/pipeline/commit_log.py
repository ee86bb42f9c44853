"""The commit log of a pipeline and its topic of dead letters: opened, created, and deleted.

A commit log may be deleted. The positions of the reader outlive it. If they were deleted too, the
next run would read the source from its start, and every sink would get the rows that it has for a
second time: a sink knows rows by their log and offset, and a new log has another identity. So rows
that were read are not read again, and those that a writer had not delivered are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tailrace.amount import format_amount
from tailrace.backend.contract import Backend, Transaction
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition, Position
from tailrace.pipeline.definition.definition import FollowedSource, PipelineDefinition
from tailrace.pipeline.definition.settings import Reading
from tailrace.pipeline.writing.writer_ledger import WriterName
from tailrace.source.split_state import read_splits, state_entry
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.ledger import Progress


def describe_deletion(definition: PipelineDefinition) -> str:
    """Return why a run failed whose commit log was deleted, and what to do."""
    if isinstance(source := definition.reader, FollowedSource):
        return (
            f"the commit log {definition.commit_log} of source {source.name} was deleted while the "
            f"pipeline ran; run a task of the source, which creates it: {source.run_command}; then "
            "run the pipeline again"
        )
    return (
        f"the commit log {definition.commit_log} was deleted while the pipeline ran; "
        "run the pipeline again: it creates the log and reads on after the rows that it has read, "
        "and those that a writer had not delivered are lost"
    )


def open_topics(
    hub: Hub, definition: PipelineDefinition, now_ms: int
) -> tuple[Topic[Any], list[str]]:
    """Open the topics of a pipeline, or create them. Return the commit log, and a sentence for each
    writer that lost records because the log was deleted. For the process that runs the pipeline.

    `TopicExists` if a topic has another number of partitions, `UnknownTopic` if the commit log of a
    followed source was deleted. Tasks may write the positions of a source that is shared: there a
    loss is reported again if the next log is deleted too.
    """
    if isinstance(definition.reader, FollowedSource):
        _open(hub, definition.dead_letters, 1, now_ms)
        return hub.topic(definition.commit_log), []
    exists = definition.commit_log in hub.topics()
    losses = [] if exists else list(_lost_records(hub.backend, definition))
    log = _open(hub, definition.commit_log, definition.settings.partitions, now_ms)
    if not exists and definition.settings.reading is Reading.ALONE:
        _forget_log(hub.backend, definition.name)
    _open(hub, definition.dead_letters, 1, now_ms)
    return log, losses


def _open(hub: Hub, name: str, partitions: int, now_ms: int) -> Topic[Any]:
    open_internal_topic(hub.backend, name, now_ms, partitions)
    return hub.create_topic(name, partitions=partitions, exist_ok=True)


def _lost_records(backend: Backend, definition: PipelineDefinition) -> Iterator[str]:
    """Yield a sentence for each writer that lost records with the log.

    The count is a lower bound: the log is gone, and its end is known only from the positions of the
    reader.
    """
    ends: dict[Partition, int] = {}
    for state in read_splits(backend, definition.name).states.values():
        if state.last is not None:
            topic, storage, number, offset = Position.parse(state.last)
            partition = Partition(topic, storage, number)
            ends[partition] = max(ends.get(partition, 0), offset + 1)
    for each in definition.writers:
        name = str(WriterName(definition.name, each.name))
        if lost := sum(_left(backend, name, where, end) for where, end in ends.items()):
            yield (
                f"writer {name} lost at least {format_amount(lost, 'record')}, which it had not "
                f"delivered when the commit log {definition.commit_log} was deleted; rows that "
                "were read are not read again: to read the source from its start, rename the "
                "pipeline"
            )


def _forget_log(backend: Backend, source: str) -> None:
    """Remove the deleted log from the positions of the reader: its loss is reported once."""
    states = read_splits(backend, source).states.values()
    forgotten = (msgspec.structs.replace(state, last=None, last_checksum=0) for state in states)
    table = dict(state_entry(source, state) for state in forgotten)
    if table:
        backend.commit(Transaction(table=table))


def _left(backend: Backend, consumer: str, partition: Partition, end: int) -> int:
    """Return the number of offsets below `end` that a consumer has not acknowledged."""
    progress = Progress.load(backend.table, consumer, partition)
    above = sum(min(after, end) - min(first, end) for first, after in progress.ranges())
    return max(0, end - progress.mark - above)
