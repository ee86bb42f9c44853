"""The `file` writer: JSON lines, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from msgspec import Meta

from tailrace.log.schema import records_of
from tailrace.message import MODE_NAMES, OP_NAMES
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.writers.files.staged_session import FileContent
from tailrace.writers.files.staged_writer import (
    StagedWriter,
    directory_meta,
    parse_choice,
    refuse_deletes,
)

_GZIP_BITS: Final = 31

_validate = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class LinesCompression(StrEnum):
    """The compression of the files."""

    NONE = "none"
    GZIP = "gzip"


class LineEnvelope(StrEnum):
    """The content of a line: the document alone, or the record with the document as value."""

    NONE = "none"
    RECORD = "record"


class FileWriter(StagedWriter, frozen=True):
    """Writes JSON lines to files, exactly once: one file for each namespace and batch.

    A document that no function changed is written with the same bytes as in the commit log.
    """

    path: Annotated[str, directory_meta("out-files/")]
    compression: Annotated[
        Literal["none", "gzip"],
        Meta(description="The compression: none or gzip.", examples=["gzip"]),
    ] = "none"
    envelope: Annotated[
        Literal["none", "record"],
        Meta(
            description="none: each line is the document, and deletes are refused. record: each"
            " line has offset, timestamp, mode, op, key, headers, and the document as value.",
            examples=["record"],
        ),
    ] = "none"

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        parse_choice("compression", self.compression, LinesCompression)
        parse_choice("envelope", self.envelope, LineEnvelope)

    def new_encoder(self, writer: str) -> JsonLinesEncoder:
        """Return the encoder of JSON lines."""
        return JsonLinesEncoder(LinesCompression(self.compression), LineEnvelope(self.envelope))


@dataclass(frozen=True, slots=True)
class JsonLinesEncoder:
    """Encodes rows as lines of JSON."""

    compression: LinesCompression
    envelope: LineEnvelope

    @property
    def suffix(self) -> str:
        """``.jsonl`` or ``.jsonl.gz``."""
        return ".jsonl.gz" if self.compression is LinesCompression.GZIP else ".jsonl"

    def encode(self, parts: Sequence[tuple[str, Rows]]) -> list[bytes]:
        """Return the lines. Line breaks between the tokens of a value are removed."""
        return [self._lines(rows) for _, rows in parts]

    def _lines(self, rows: Rows) -> bytes:
        if self.envelope is LineEnvelope.NONE:
            refuse_deletes(rows, 'envelope = "record"')
        values = _checked(rows)
        if self.envelope is LineEnvelope.RECORD:
            values = list(_enveloped(rows.encoded, values))
        return b"\n".join([*values, b""])

    def create(self, stream: pa.NativeFile, table: str) -> FileContent:
        """Begin a file to which lines are written at once."""
        return (
            _GzipContent(stream)
            if self.compression is LinesCompression.GZIP
            else _PlainContent(stream)
        )


def _checked(rows: Rows) -> list[bytes]:
    """Return the value of each row as a JSON object on one line; ``{}`` for a row without value."""
    values: list[Any] = rows.encoded["value"].to_pylist()
    for index, value in enumerate(values):
        value = values[index] = value or b"{}"
        try:
            _validate(value)
            value.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _not_an_object(rows, index, str(error)) from None
        if b"\n" in value or b"\r" in value:
            value = values[index] = _encode(_decode(value))
        if not value.startswith(b"{"):
            value = values[index] = value.strip()
            if not value.startswith(b"{"):
                raise _not_an_object(rows, index, "it is another JSON type")
    return values


def _not_an_object(rows: Rows, index: int, reason: str) -> RowError:
    return RowError(rows.offsets[index], f"its value is not a JSON object: {reason}")


class _EnvelopeLine(msgspec.Struct, omit_defaults=True):
    """A line of `LineEnvelope.RECORD`."""

    offset: int
    timestamp: str
    mode: str
    op: str
    key: str
    value: msgspec.Raw
    headers: dict[str, str] = {}


def _enveloped(records: pa.RecordBatch, values: list[bytes]) -> Iterator[bytes]:
    times: list[Any] = pc.strftime(records["timestamp"], "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    for record, time, value in zip(records_of(records), times, values, strict=True):
        headers = {name: _text(header) for name, header in (record.headers or {}).items()}
        mode, op, key = MODE_NAMES[record.mode], OP_NAMES[record.op], _text(record.key or b"")
        yield _encode(
            _EnvelopeLine(record.offset, time, mode, op, key, msgspec.Raw(value), headers)
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class _PlainContent:
    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def add(self, encoded: Any) -> None:
        self._stream.write(encoded)

    def end(self) -> None:
        return None


class _GzipContent:
    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._compressor = isal_zlib.compressobj(wbits=_GZIP_BITS)

    def add(self, encoded: Any) -> None:
        self._stream.write(self._compressor.compress(encoded))

    def end(self) -> None:
        self._stream.write(self._compressor.flush())
