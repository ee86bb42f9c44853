"""The audit of manual changes, as commands write and read it.

The entry of a change to a writer or to dead letters is stored in one transaction with the change.
The entry of a change to a topic or a group is stored directly after the change.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tailrace.backend.contract import Transaction
from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.topic.audit_log import AUDIT, DISCARDED, AuditEntry, audit_append, decode_audit
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.view import commit_following
from tailrace.user_name import user_at_host

_NOTHING: Final[Mapping[str, Any]] = {}


def audit_entry(
    command: str,
    target: str,
    *,
    before: Mapping[str, Any] = _NOTHING,
    after: Mapping[str, Any] = _NOTHING,
    reason: str = "",
) -> AuditEntry:
    """Return an entry with the current time and the user of this process."""
    return AuditEntry(
        utc_time(time.time_ns() // 1_000_000),
        user_at_host(),
        os.getpid(),
        command,
        target,
        dict(before),
        dict(after),
        reason,
    )


def audit_topic(hub: Hub) -> Topic[Any]:
    """Return the audit topic. Create it if it does not exist."""
    open_internal_topic(hub.backend, AUDIT, time.time_ns() // 1_000_000)
    return hub.topic(AUDIT)


def append_audit(hub: Hub, entry: AuditEntry) -> None:
    """Store an entry by itself, after a change that is not part of a `Transaction`."""
    topic = audit_topic(hub)
    commit_following(
        hub.backend,
        {topic.name: topic.view},
        lambda: Transaction((audit_append(topic.view, entry),), since=topic.view.target.since),
    )


@dataclass(frozen=True, slots=True)
class DiscardedMessage:
    """A message that an operator discarded: its position, its key, of which consumer, and who did
    it, when and why."""

    message: str
    key: str | None
    consumer: str
    who: str
    time: datetime
    reason: str


def read_discarded(hub: Hub, consumer: str | None, count: int) -> list[DiscardedMessage]:
    """Return the messages that were discarded last, at most `count`, the oldest first; of one
    consumer, or of all. Of each discard, at most `NAMED_MAX` are known."""
    newest: deque[DiscardedMessage] = deque(maxlen=count)
    for entry in _entries(hub, consumer):
        newest += (
            DiscardedMessage(
                each["message"], each["key"], entry.target, entry.who, entry.time, entry.reason
            )
            for each in entry.after.get(DISCARDED, ())
        )
    return list(newest)


def read_audit(hub: Hub, target: str | None, count: int) -> list[AuditEntry]:
    """Return the newest entries, at most `count`, the oldest first; of one target, or of all."""
    return list(deque(_entries(hub, target), maxlen=count))


def _entries(hub: Hub, target: str | None) -> Iterator[AuditEntry]:
    if AUDIT not in hub.topics():
        return
    reader = hub.topic(AUDIT).reader()
    while reads := reader.poll():
        for _, records in reads:
            entries = (decode_audit(record.value) for record in records_of(records))
            yield from (entry for entry in entries if target in (None, entry.target))
