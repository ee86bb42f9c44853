"""The messages of a group that failed and block their keys, for people.

The owner of a partition stores them; see `tailrace.delivery.failed_attempts`. An entry counts until
the group's ledger contains the offset, so a skip need not remove it. A seek removes the entries of
its topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tailrace.amount import format_amount
from tailrace.backend.contract import Backend
from tailrace.clock import utc_time
from tailrace.delivery.failed_attempts import FailedAttempt, read_failed
from tailrace.errors import DeliveryFailed, Error
from tailrace.group.store.definition import consumer_name
from tailrace.group.store.history import HistoryLine, append_history
from tailrace.message import Partition
from tailrace.topic.composite import Definition
from tailrace.topic.ledger import Progress

_log: Final = logging.getLogger("tailrace.group")


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that failed in `consumer` and is not acknowledged: it blocks its key.

    `attempts` is the number of failed attempts, `time` the time of the first and `error` the reason
    of the last, empty if it is not known. `next_attempt` is when the message is delivered again;
    None if it had its last attempt, or if no consumer owns its partition. `behind` is the number of
    messages of the same key that the consumer has read and holds back.
    """

    position: str
    key: str | None
    attempts: int
    time: datetime
    consumer: str
    error: str
    next_attempt: datetime | None
    behind: int


def failed_messages(backend: Backend, group: str) -> dict[str, tuple[FailedMessage, ...]]:
    """Return the failed messages by partition, the lowest offset first."""
    found: dict[str, tuple[FailedMessage, ...]] = {}
    for unit, entries in read_failed(backend.table, group).items():
        progress = Progress.load(backend.table, consumer_name(group), Partition.parse(unit))
        if left := sorted(offset for offset in entries if not progress.acked(offset)):
            found[unit] = tuple(_message(f"{unit}@{offset}", entries[offset]) for offset in left)
    return found


def record_failed(
    backend: Backend, group: str, consumer: str, failed: DeliveryFailed, time_ms: int
) -> None:
    """Append to the group's history that a message failed its last attempt.

    Logs errors of the backend instead of raising them.
    """
    why = f"{failed.position} failed after {format_amount(failed.attempts, 'attempt')}"
    unit = failed.position.rpartition("@")[0]
    line = HistoryLine(utc_time(time_ms), group, "failed", unit, consumer, why=why)
    try:
        append_history(backend, [line])
    except Error as error:
        _log.warning("group %s: cannot record that %s failed: %s", group, failed.position, error)


def followers(
    definition: Definition, partition: Partition, others: Iterable[Partition]
) -> set[Partition]:
    """Return those of the others, partitions of the same topic, that follow a partition, directly
    or over partitions between."""
    reached = {partition}
    for other in sorted(others):
        if other.storage > partition.storage and definition.follows(other) & reached:
            reached.add(other)
    return reached - {partition}


def _message(position: str, entry: FailedAttempt) -> FailedMessage:
    return FailedMessage(
        position=position,
        key=entry.key,
        attempts=entry.attempts,
        time=utc_time(entry.since_ms),
        consumer=entry.consumer,
        error=entry.error,
        next_attempt=None if entry.next_ms is None else utc_time(entry.next_ms),
        behind=entry.behind,
    )
