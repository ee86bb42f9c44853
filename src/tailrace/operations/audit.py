"""The audit of manual changes: the topic ``tailrace.audit``.

The entry of a change to a writer or to dead letters is stored in one transaction with the change,
so neither exists without the other. The entry of a change to a topic or a group is stored directly
after the change. The key of the record is the target of the change, the value an `AuditEntry` as
JSON.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from tailrace.backend.contract import Records, Transaction
from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.view import commit_following

AUDIT: Final = "tailrace.audit"

_encode = msgspec.json.Encoder().encode
_NOTHING: Final[Mapping[str, Any]] = {}


class AuditEntry(msgspec.Struct, frozen=True):
    """A manual change: its time, user, command and target, and the state before and after.

    `who` is ``user@host``. `reason` is empty for a command that does not require one.
    """

    time: datetime
    who: str
    pid: int
    command: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]
    reason: str = ""


_decode = msgspec.json.Decoder(AuditEntry).decode


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
        f"{_user()}@{socket.gethostname()}",
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


def audit_append(topic: Topic[Any], entry: AuditEntry) -> tuple[Partition, Records]:
    """Return the append that stores an entry, for the transaction of the change."""
    time_ms = int(entry.time.timestamp() * 1000)
    key = entry.target.encode()
    record = Record(0, time_ms, Mode.SYNC, Op.INSERT, key, None, _encode(entry))
    return topic.view.target.partition_of(key), (record,)


def append_audit(hub: Hub, entry: AuditEntry) -> None:
    """Store an entry by itself, after a change that is not part of a `Transaction`."""
    topic = audit_topic(hub)
    commit_following(
        hub.backend,
        {topic.name: topic.view},
        lambda: Transaction((audit_append(topic, entry),), since=topic.view.target.since),
    )


def read_audit(hub: Hub, target: str | None, count: int) -> list[AuditEntry]:
    """Return the newest entries, at most `count`, the oldest first; of one target, or of all."""
    newest: deque[AuditEntry] = deque(maxlen=count)
    if AUDIT not in hub.topics():
        return []
    reader = hub.topic(AUDIT).reader()
    while reads := reader.poll():
        for _, records in reads:
            entries = (_decode(record.value) for record in records_of(records))
            newest += (entry for entry in entries if target in (None, entry.target))
    return list(newest)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return str(os.getuid())
