"""The audit of manual changes: the topic ``tailrace.audit``.

An entry that belongs to a change of the log or of tables is appended in the transaction of that
change, so neither exists without the other. The key of the record is the target of the change, the
value an `AuditEntry` as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from tailrace.backend.contract import Backend, Records, Transaction
from tailrace.errors import Busy, Sealed, UnknownTopic
from tailrace.log.record import Record
from tailrace.message import Mode, Op, Partition, Range
from tailrace.topic.internal_topics import open_internal_topic
from tailrace.topic.view import SWITCHES_MAX, View

AUDIT: Final = "tailrace.audit"

NAMED_MAX: Final = 100
"""The number of messages, and of keys, that an entry names."""

DISCARDED: Final = "discarded"
"""In `AuditEntry.after`: the messages that were discarded, as `discarded_message` names them."""


class AuditEntry(msgspec.Struct, frozen=True):
    """A manual change: its time, user, command and target, and the state before and after.

    `who` is ``user@host``. `reason` is empty for a command that does not require one. In `after`,
    ``done`` describes the change in words.
    """

    time: datetime
    who: str
    pid: int
    command: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]
    reason: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditEntry).decode


def decode_audit(value: bytes) -> AuditEntry:
    """Decode the value of a record."""
    return _decode(value)


def discarded_message(position: str, key: bytes | None) -> dict[str, str | None]:
    """Return the position and the key of a message that was discarded, for an entry."""
    return {
        "message": position,
        "key": None if key is None else key.decode("utf-8", "backslashreplace"),
    }


def audit_append(view: View, entry: AuditEntry) -> tuple[Partition, Records]:
    """Return the append that stores an entry, for the transaction of the change."""
    time_ms = int(entry.time.timestamp() * 1000)
    key = entry.target.encode()
    record = Record(0, time_ms, Mode.SYNC, Op.INSERT, key, None, _encode(entry))
    return view.target.partition_of(key), (record,)


def commit_audited(
    backend: Backend, transaction: Transaction, entries: Sequence[AuditEntry], now_ms: int
) -> list[Range]:
    """Commit a transaction together with audit entries. Returns the ranges of its own appends.

    Creates the audit topic if it does not exist.
    """
    for _ in range(SWITCHES_MAX):
        view = open_internal_topic(backend, AUDIT, now_ms)
        appends = (*transaction.appends, *(audit_append(view, entry) for entry in entries))
        since = {**transaction.since, **view.target.since}
        try:
            ranges = backend.commit(replace(transaction, appends=appends, since=since))
        except (Sealed, UnknownTopic) as gone:
            if gone.topic != AUDIT:
                raise
        else:
            return ranges[: len(transaction.appends)]
    raise Busy(f"topic {AUDIT!r} was changed {SWITCHES_MAX} times in a row", "try again later")
