"""Who changed what by hand, and why: the topic ``tailrace.audit``.

A record of it is stored in one transaction with the change that it tells of, so there is neither
without the other. Its key is what was changed, its value an `AuditEntry` as JSON.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tailrace.backend.contract import Records
from tailrace.hub import Hub
from tailrace.log.columns import records_of
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition
from tailrace.topic.own import own_topic
from tailrace.topic.topic import Topic

AUDIT: Final = "tailrace.audit"

_encode = msgspec.json.Encoder().encode
_NOTHING: Final[Mapping[str, Any]] = {}


class AuditEntry(msgspec.Struct, frozen=True):
    """One change: who made it, when, by which command, of what, and how that was before and after.

    `who` is ``user@host``. A change that was asked to have no reason has an empty one.
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
    """An entry of this moment, by the user of this process."""
    return AuditEntry(
        datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC),
        f"{_user()}@{socket.gethostname()}",
        os.getpid(),
        command,
        target,
        dict(before),
        dict(after),
        reason,
    )


def audit_topic(hub: Hub) -> Topic[Any]:
    """The topic of all entries, made if it is not there."""
    own_topic(hub.backend, AUDIT, time.time_ns() // 1_000_000)
    return hub.topic(AUDIT)


def audit_append(topic: Topic[Any], entry: AuditEntry) -> tuple[Partition, Records]:
    """What a transaction appends to have an entry stored with it."""
    time_ms = int(entry.time.timestamp() * 1000)
    key = entry.target.encode()
    record = Record(0, time_ms, Mode.SYNC, Op.INSERT, key, None, _encode(entry))
    return topic.view.target.partition_of(key), (record,)


def read_audit(hub: Hub, target: str | None, count: int) -> list[AuditEntry]:
    """The newest entries, oldest first; of one target, or of all."""
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
    except (KeyError, OSError):  # a user without a name, as containers have them
        return str(os.getuid())
