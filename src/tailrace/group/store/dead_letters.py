"""The dead letters of a group: the topic ``tailrace.dead-letters.GROUP``.

A message that had its last attempt becomes a dead letter if the consumer asks for it. One commit,
under the fence of the partition's owner, appends the letter, acknowledges the message and writes
the history. So a message is never lost between the two, never stored twice, and a consumer that
lost the partition stores nothing.

The topic is internal: no filter of a group matches it, so no group consumes its own dead letters.
"""

from __future__ import annotations

from typing import Final

from tailrace.backend.contract import Backend, Fence, Transaction
from tailrace.clock import utc_time
from tailrace.delivery.dead_letters.letter import failed_record
from tailrace.delivery.failed_attempts import failed_key
from tailrace.error_text import storable
from tailrace.errors import Busy, UnknownTopic
from tailrace.group.store.definition import consumer_name
from tailrace.group.store.history import HISTORY, HistoryLine, history_append
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.reserved_names import INTERNAL_PREFIX
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.ledger import Progress
from tailrace.topic.view import commit_following

DEAD_LETTERS: Final = f"{INTERNAL_PREFIX}dead-letters."


def dead_letter_topic(group: str) -> str:
    """Return the name of the topic with a group's dead letters."""
    return DEAD_LETTERS + group


def commit_dead_letter(
    backend: Backend,
    group: str,
    partition: Partition,
    record: Record,
    error: str,
    *,
    consumer: str,
    fence: Fence,
    now_ms: int,
) -> None:
    """Store a record as a dead letter of a group and acknowledge it, in one transaction.

    Nothing else of the partition may be committed meanwhile. Raises `Fenced` if the partition was
    granted to another consumer.
    """
    letters = open_internal_topic(backend, dead_letter_topic(group), now_ms)
    history = open_internal_topic(backend, HISTORY, now_ms)
    letter = failed_record(record, partition, group, error, now_ms)
    why = f"{partition}@{record.offset}: {storable(error)}"
    line = HistoryLine(utc_time(now_ms), group, "dead-letter", str(partition), consumer, why=why)
    progress = Progress.load(backend.table, consumer_name(group), partition)
    progress.ack(record.offset, record.offset + 1)
    table = {**progress.writes(), failed_key(group, str(partition), record.offset): None}

    def build() -> Transaction:
        target = letters.target
        appends = ((target.partition_of(letter.key), (letter,)), history_append(history, line))
        return Transaction(appends, table, fence, since={**target.since, **history.target.since})

    try:
        commit_following(backend, {letters.topic: letters, history.topic: history}, build)
    except UnknownTopic as unknown:
        raise Busy(f"topic {unknown.topic!r} was just deleted", "try again") from unknown
