"""Dead letters: records that could not be written, or not even read, with the reason.

They are the records of the pipeline's topic ``lake.dead-letters``, unchanged but for headers that
say whose they are and why. One that was redelivered or discarded is acknowledged by the consumer
``lake.dead-letters/resolved``; all others wait for an operator.
"""

from __future__ import annotations

from typing import Final

from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.pipeline.chain import FOR_HEADER

WRITER: Final = "tailrace.writer"
ERROR: Final = "tailrace.error"
POSITION: Final = "tailrace.position"
WHERE: Final = "tailrace.where"
READER: Final = "tailrace.reader"
OWN: Final = frozenset((WRITER, ERROR, POSITION, WHERE, READER, FOR_HEADER))


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
        ERROR: error.encode(),
        POSITION: f"{partition}@{record.offset}".encode(),
    }
    return record._replace(offset=0, timestamp=now_ms, headers=headers)


def redelivery(letter: Record, writer: str) -> Record:
    """The record that a dead letter was, to be appended to the commit log again for one writer."""
    headers = {name: value for name, value in (letter.headers or {}).items() if name not in OWN}
    headers[FOR_HEADER] = writer.encode()
    return letter._replace(offset=0, headers=headers)
