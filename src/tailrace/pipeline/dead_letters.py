"""Dead letters: records that could not be written, or not even read, with the reason.

They are the records of the pipeline's topic ``lake.dead-letters``, unchanged but for their time,
that of the failure, and headers that say whose they are and why. One that was redelivered or
discarded is acknowledged by the consumer ``lake.dead-letters/resolved``; all others wait for an
operator.
"""

from __future__ import annotations

from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.source.headers import (
    ERROR,
    FOR,
    OF_DEAD_LETTERS,
    POSITION,
    TIMESTAMP,
    WRITER,
    error_text,
)


def resolved_by(topic: str) -> str:
    """The consumer that has acknowledged the dead letters somebody dealt with."""
    return f"{topic}/resolved"


def dead_letter(
    record: Record, partition: Partition, writer: str, error: str, now_ms: int
) -> Record:
    """A record that a writer could not take, as the dead letters keep it."""
    headers = dict(record.headers or {})
    headers |= {
        WRITER: writer.encode(),
        ERROR: error_text(error),
        POSITION: f"{partition}@{record.offset}".encode(),
        TIMESTAMP: str(record.timestamp).encode(),
    }
    return record._replace(offset=0, timestamp=now_ms, headers=headers)


def redelivery(letter: Record, writer: str) -> Record:
    """The record that a dead letter was, to be appended to the commit log again for one writer."""
    held = letter.headers or {}
    headers = {name: value for name, value in held.items() if name not in OF_DEAD_LETTERS}
    headers[FOR] = writer.encode()
    timestamp = int(held.get(TIMESTAMP, letter.timestamp))
    return letter._replace(offset=0, timestamp=timestamp, headers=headers)
