"""`file`: JSON lines, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib
from msgspec import Meta

from tailrace.log.schema import records_of
from tailrace.message import Mode, Op
from tailrace.pipeline.rows import RowError, Rows
from tailrace.writers.runs import Content
from tailrace.writers.staging import StagedWriter, chosen, directory_meta

_GZIP_BITS: Final = 31
_MODES: Final = tuple(mode.name.lower() for mode in Mode)
_OPS: Final = tuple(op.name.lower() for op in Op)

_validate = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Compression(StrEnum):
    """How the files are compressed."""

    NONE = "none"
    GZIP = "gzip"


class Envelope(StrEnum):
    """What a line is: the document, or a record with the document in it."""

    NONE = "none"
    RECORD = "record"


class FileWriter(StagedWriter, frozen=True):
    """JSON lines in files, exactly once: one file for each namespace and batch.

    Documents that no function changed are written byte by byte as they are in the commit log.
    """

    path: Annotated[str, directory_meta("out-files/")]
    compression: Annotated[
        Literal["none", "gzip"], Meta(description="none or gzip.", examples=["gzip"])
    ] = "none"
    envelope: Annotated[
        Literal["none", "record"],
        Meta(
            description="none: a line is the document, and a delete is refused. record: a line has"
            " offset, timestamp, mode, op, key, headers, and the document as value.",
            examples=["record"],
        ),
    ] = "none"

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        super().__post_init__()
        chosen("compression", self.compression, Compression)
        chosen("envelope", self.envelope, Envelope)

    @property
    def format(self) -> JsonLines:
        """Lines of JSON."""
        return JsonLines(Compression(self.compression), Envelope(self.envelope))


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Rows as lines of JSON."""

    compression: Compression
    envelope: Envelope

    @property
    def suffix(self) -> str:
        """``.jsonl``, or ``.jsonl.gz``."""
        return ".jsonl.gz" if self.compression is Compression.GZIP else ".jsonl"

    def encode(self, rows: Rows) -> bytes:
        """The lines. A value that has line breaks between its tokens is written without."""
        if self.envelope is Envelope.NONE:
            refuse_deletes(rows, 'envelope = "record"')
        values = _checked(rows)
        if self.envelope is Envelope.RECORD:
            values = list(_enveloped(rows.encoded, values))
        return b"\n".join([*values, b""])

    def create(self, stream: pa.NativeFile) -> Content:
        """Lines are written as they come."""
        return _Gzip(stream) if self.compression is Compression.GZIP else _Plain(stream)


def refuse_deletes(rows: Rows, remedy: str) -> None:
    """`RowError` for the first row that says a row is gone, where the file could not say that."""
    deletes = (rows.records["op"].to_numpy() == Op.DELETE).nonzero()[0]
    if len(deletes):
        raise RowError(
            rows.records["offset"][int(deletes[0])].as_py(),
            "a delete would look like a row here · "
            f"set {remedy}, or drop deletes with the function opfilter",
        )


def _checked(rows: Rows) -> list[bytes]:
    """The value of each row, which is a JSON object in one line; no value is an empty one."""
    values: list[Any] = rows.encoded["value"].to_pylist()
    for index, value in enumerate(values):
        value = values[index] = value or b"{}"
        try:
            _validate(value)
            value.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _no_object(rows, index, str(error)) from None
        if b"\n" in value or b"\r" in value:
            value = values[index] = _encode(_decode(value))
        if not value.startswith(b"{"):
            value = values[index] = value.strip()
            if not value.startswith(b"{"):
                raise _no_object(rows, index, "it is another kind of JSON")
    return values


def _no_object(rows: Rows, index: int, reason: str) -> RowError:
    return RowError(rows.offsets[index], f"its value is no JSON object: {reason}")


class _Line(msgspec.Struct, omit_defaults=True):
    """A line with an envelope."""

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
        mode, op, key = _MODES[record.mode], _OPS[record.op], _text(record.key or b"")
        yield _encode(_Line(record.offset, time, mode, op, key, msgspec.Raw(value), headers))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class _Plain:
    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def add(self, encoded: Any) -> None:
        self._stream.write(encoded)

    def end(self) -> None:
        pass


class _Gzip:
    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._compressor = isal_zlib.compressobj(wbits=_GZIP_BITS)

    def add(self, encoded: Any) -> None:
        self._stream.write(self._compressor.compress(encoded))

    def end(self) -> None:
        self._stream.write(self._compressor.flush())
