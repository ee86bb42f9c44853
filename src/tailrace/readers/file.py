"""The `file` reader: JSON lines, CSV and Parquet, plain or compressed, copied and then followed."""

from __future__ import annotations

import codecs
import os
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tailrace.amount import format_amount
from tailrace.duration import parse_duration
from tailrace.errors import Error, InvalidValue, NothingToRead
from tailrace.readers.csv import ColumnType
from tailrace.readers.file_reading import FileReading
from tailrace.readers.file_source import FileSource
from tailrace.readers.files import FileInfo, Unreadable
from tailrace.readers.lines import Ending
from tailrace.readers.place import Place
from tailrace.source.reader import Preview, Reader, Until

_PREVIEWED: Final = 5
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FileReader(Reader, frozen=True):
    """Reads files: first all there is, as a copy, then what is added to them and new ones."""

    path: Annotated[
        str,
        Meta(
            description="Which files: one path, or a glob with * ? [] and ** for any directories.",
            examples=["in/*.jsonl", "logs/**/app.log*"],
            extra={"path": True},
        ),
    ]
    format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        Meta(
            description="What the files hold; by default what their names say: .jsonl, .ndjson"
            " and .json are JSON lines, .csv and .tsv CSV, .parquet Parquet.",
            examples=["jsonl"],
        ),
    ] = None
    compression: Annotated[
        Literal["none", "gzip"] | None,
        Meta(description="By default what their names say: .gz is gzip.", examples=["gzip"]),
    ] = None
    namespace: Annotated[
        str | None,
        Meta(
            description="The namespace of all rows; by default each file's name without what says"
            " its format, so that orders.jsonl.gz is orders.",
            examples=["orders"],
        ),
    ] = None
    identity: Annotated[
        tuple[str, ...],
        Meta(
            description="The fields that tell a row from others: what order is kept by when the"
            " commit log has several partitions. A row without one of them is a dead letter.",
            examples=[["id"]],
        ),
    ] = ()
    types: Annotated[
        dict[str, ColumnType],
        Meta(
            description="Columns of CSV files that are int, float or bool; the others are text.",
            examples=[{"id": "int", "total": "float"}],
        ),
    ] = msgspec.field(default_factory=dict)
    delimiter: Annotated[
        str, Meta(description="What lies between the values of CSV files.", examples=[";"])
    ] = ","
    encoding: Annotated[
        str,
        Meta(
            description="How text is encoded; any that writes a newline as one byte.",
            examples=["latin-1"],
        ),
    ] = "utf-8"
    poll: Annotated[
        str, Meta(description="How often followed files are looked at.", examples=["200ms"])
    ] = "1s"
    line_bytes_max: Annotated[
        int,
        Meta(
            description="A longer line is a dead letter. Not above the hub's message_bytes_max.",
            examples=[1 << 20],
            ge=1,
            le=1 << 30,
        ),
    ] = 1 << 20

    def __post_init__(self) -> None:
        if not self.path or "\0" in self.path:
            raise InvalidValue("path", self.path, "a path or a glob, for example in/*.jsonl")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise InvalidValue("delimiter", self.delimiter, "one character, and no quote")
        if parse_duration(self.poll, "poll").total_seconds() <= 0:
            raise InvalidValue("poll", self.poll, "more than 0s")
        _check_encoding(self.encoding)

    def check(self) -> Preview:
        """Look at the files and at the first rows; `NothingToRead` when there are none yet."""
        self._refuse_directory()
        source = FileSource(self, Until.NOW)
        files = list(source.look())
        if not files:
            raise self._nothing()
        for file in files:
            source.format_of(file.path)
            if not os.access(file.path, os.R_OK):
                raise Error(f"the file {file.path!r} may not be read", "change its permissions")
        documents: list[tuple[str, dict[str, Any]]] = []
        bad = 0
        for file in files:
            if len(documents) < _PREVIEWED:
                found, refused = _first_documents(source, file)
                documents += ((source.namespace_of(file.path), each) for each in found)
                bad += refused
        namespaces = sorted({source.namespace_of(file.path) for file in files})
        size = format_amount(sum(file.size for file in files), "byte")
        sentence = f"{format_amount(len(files), 'file')}, {size}, of {_some(namespaces)}"
        if bad:
            sentence += f"; {format_amount(bad, 'bad line')} among the first"
        return Preview(sentence, documents[:_PREVIEWED])

    def open(self, until: Until) -> FileReading:
        """Open it."""
        self._refuse_directory()
        return FileReading(self, until)

    def _refuse_directory(self) -> None:
        if os.path.isdir(self.path):
            inside = os.path.join(self.path, "*.jsonl")
            raise InvalidValue("path", self.path, "a file or a glob", f"for example {inside}")

    def _nothing(self) -> Error:
        directory = os.path.dirname(self.path)
        while any(character in directory for character in "*?["):
            directory = os.path.dirname(directory)
        where, nothing = os.path.abspath(directory), f"no file matches {self.path!r}"
        if os.path.isdir(where):
            return NothingToRead(nothing, f"looked in {where}", "check the path")
        return Error(
            nothing, f"looked in {where}, which is not there", "check the path, or make it"
        )


def _check_encoding(encoding: str) -> None:
    try:
        lines = "a\n".encode(codecs.lookup(encoding).name)
    except (LookupError, ValueError):
        lines = b""
    if lines != b"a\n":
        raise InvalidValue("encoding", encoding, "utf-8, latin-1, cp1252 or another such codec")


def _first_documents(source: FileSource, file: FileInfo) -> tuple[list[dict[str, Any]], int]:
    """Some documents of a file, and how many bad lines were met before."""
    opened = source.open(file.path)
    if opened is None:
        return [], 0
    place = Place(file.path, file.device, file.inode)
    try:
        piece = source.format_of(file.path).read(opened, place, file.size, Ending.NOW)
    except Unreadable as error:
        raise Error(f"{file.path} cannot be read: {error}") from error
    finally:
        opened.close()
    if piece is None:
        return [], 0
    found = [_decode(value.as_py()) for value in piece.values[:_PREVIEWED]]
    return found, len(piece.bad)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_PREVIEWED])
    more = len(names) - _PREVIEWED
    return f"{shown} and {more} more" if more > 0 else shown
