"""A dead letter: the failed record, with headers that say who failed, where and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.error_text import storable
from tailrace.log.record import Record, header_block
from tailrace.log.redelivered import FOR
from tailrace.message import Mode, Op, Partition

READER: Final = "tailrace.reader"
WRITER: Final = "tailrace.writer"
"""On a dead letter: the source that could not read it, or the consumer that could not process it:
the writer ``lake/crm`` or the group ``billing``."""

ERROR: Final = "tailrace.error"
WHERE: Final = "tailrace.where"
POSITION: Final = "tailrace.position"
TIMESTAMP: Final = "tailrace.timestamp"
"""On a dead letter: the error; the place in the source; the position of the record in its topic;
and the record's timestamp there in milliseconds."""

CUT: Final = "tailrace.cut"
"""On a dead letter whose value was too long and is truncated: the original length in bytes."""

LETTER_HEADERS: Final = frozenset((READER, WRITER, ERROR, WHERE, POSITION, TIMESTAMP, CUT))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as it is stored: the record, and the partition that holds it."""

    partition: Partition
    record: Record

    @property
    def headers(self) -> dict[str, bytes]:
        """All headers, including those that make the record a letter."""
        return dict(self.record.headers or {})

    @property
    def writer(self) -> str | None:
        """The consumer that could not process the record; None if a source could not read it."""
        found = self.headers.get(WRITER)
        return None if found is None else _text(found)

    @property
    def consumer(self) -> str:
        """The writer, or the source that could not read the record."""
        return self.writer or _text(self.headers.get(READER, b""))

    @property
    def error(self) -> str:
        """The error."""
        return _text(self.headers.get(ERROR, b""))

    @property
    def position(self) -> str:
        """The position of the letter itself."""
        return f"{self.partition}@{self.record.offset}"

    @property
    def origin(self) -> str:
        """The position of the failed record in its topic, or its place in the source."""
        return _text(self.headers.get(POSITION) or self.headers.get(WHERE) or b"")


def failed_record(
    record: Record, partition: Partition, consumer: str, error: str, now_ms: int
) -> Record:
    """Return the dead letter of a record that a consumer could not process."""
    headers = {name: value for name, value in (record.headers or {}).items() if name != FOR}
    headers |= {
        WRITER: consumer.encode(),
        ERROR: storable(error).encode(),
        POSITION: f"{partition}@{record.offset}".encode(),
        TIMESTAMP: str(record.timestamp).encode(),
    }
    return record._replace(offset=0, timestamp=now_ms, headers=headers)


def unreadable_record(
    source: str,
    namespace: str,
    where: str,
    error: str,
    value: bytes,
    *,
    now_ms: int,
    bytes_max: int,
) -> Record:
    """Return the dead letter of data that a source could not read.

    The value is truncated if it and the headers have more than `bytes_max` bytes.
    """
    headers = {
        ERROR: storable(error).encode(),
        WHERE: where.encode("utf-8", "backslashreplace"),
        READER: source.encode(),
    }
    if len(value) + len(header_block(headers)) > bytes_max:
        headers[CUT] = str(len(value)).encode()
        value = value[: max(0, bytes_max - len(header_block(headers)))]
    return Record(0, now_ms, Mode.COPY, Op.INSERT, namespace.encode(), headers, value)


def redelivery(letter: Record, consumer: str) -> Record:
    """Return the record that a letter was, addressed to one consumer alone."""
    held = letter.headers or {}
    headers = {name: value for name, value in held.items() if name not in LETTER_HEADERS}
    headers[FOR] = consumer.encode()
    timestamp = int(held.get(TIMESTAMP, letter.timestamp))
    return letter._replace(offset=0, timestamp=timestamp, headers=headers)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
