"""The options of the `file` reader, and its check before a run."""

from __future__ import annotations

import codecs
import os
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tailrace.amount import format_amount
from tailrace.duration import parse_duration
from tailrace.errors import Error, InvalidValue, NothingToRead
from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.files import FileInfo, UnreadableFile
from tailrace.readers.file.formats.csv import ColumnType
from tailrace.readers.file.formats.format import FileEnd
from tailrace.readers.file.session import FileReaderSession
from tailrace.readers.file.session_state import FileSessionState
from tailrace.source.reader import Preview, Reader, Until

_PREVIEW_MAX: Final = 5
"""Number of documents, and of namespaces, in a preview."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FileReader(Reader, frozen=True):
    """Reads files: first copies all that exist, then follows them and new files."""

    path: Annotated[
        str,
        Meta(
            description="The files: one path, or a glob with * ? [] and ** for directories.",
            examples=["in/*.jsonl", "logs/**/app.log*"],
            extra={"path": True},
        ),
    ]
    format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        Meta(
            description="The format of the files. Default: from their names; .jsonl, .ndjson and"
            " .json are JSON lines, .csv and .tsv are CSV, .parquet is Parquet.",
            examples=["jsonl"],
        ),
    ] = None
    compression: Annotated[
        Literal["none", "gzip"] | None,
        Meta(
            description="The compression of the files. Default: from their names; .gz is gzip.",
            examples=["gzip"],
        ),
    ] = None
    namespace: Annotated[
        str | None,
        Meta(
            description="The namespace of all rows. Default: each file's name without suffixes;"
            " orders for orders.jsonl.gz.",
            examples=["orders"],
        ),
    ] = None
    identity: Annotated[
        tuple[str, ...],
        Meta(
            description="The fields that identify a row. Rows with the same identity keep their"
            " order if the commit log has several partitions. A row that lacks one of the fields"
            " becomes a dead letter.",
            examples=[["id"]],
        ),
    ] = ()
    types: Annotated[
        dict[str, ColumnType],
        Meta(
            description="The types of CSV columns: int, float or bool. Other columns are text.",
            examples=[{"id": "int", "total": "float"}],
        ),
    ] = msgspec.field(default_factory=dict)
    delimiter: Annotated[
        str, Meta(description="The character between the values of CSV files.", examples=[";"])
    ] = ","
    encoding: Annotated[
        str,
        Meta(
            description="The text encoding: any that writes a newline as one byte.",
            examples=["latin-1"],
        ),
    ] = "utf-8"
    poll: Annotated[
        str, Meta(description="How often to check the files for new data.", examples=["200ms"])
    ] = "1s"
    line_bytes_max: Annotated[
        int,
        Meta(
            description="The maximum length of a line. A longer line becomes a dead letter. Keep it"
            " at or below the hub's message_bytes_max.",
            examples=[1 << 20],
            ge=1,
            le=1 << 30,
            extra={"size": True},
        ),
    ] = 1 << 20
    range_bytes: Annotated[
        int | None,
        Meta(
            description="The size in bytes of the ranges in which larger files are copied, so that"
            " several tasks can copy one file. For JSON lines without compression, and Parquet."
            " Rows of a divided file are in order within a range. Default: files are not divided.",
            examples=[64 << 20],
            extra={"size": True},
        ),
    ] = None

    def __post_init__(self) -> None:
        if not self.path or "\0" in self.path:
            raise InvalidValue("path", self.path, "a path or a glob, for example in/*.jsonl")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            valid = "one character, not a quote or a line break"
            raise InvalidValue("delimiter", self.delimiter, valid)
        if parse_duration(self.poll, "poll").total_seconds() <= 0:
            raise InvalidValue("poll", self.poll, "a duration above 0s, for example 1s")
        if self.range_bytes is not None and self.range_bytes < 1:
            raise InvalidValue("range_bytes", self.range_bytes, "a number of bytes, at least 1")
        _check_encoding(self.encoding)

    def check(self) -> Preview:
        """Check that every file can be read, and preview the first rows.

        Raises `NothingToRead` if no file matches yet.
        """
        self._refuse_directory()
        state = FileSessionState(self, Until.NOW)
        files = list(state.poll())
        if not files:
            raise self._no_files()
        for file in files:
            state.format_of(file.path)
            if not os.access(file.path, os.R_OK):
                raise Error(
                    f"permission denied: {file.path!r}",
                    "grant read permission to the user that runs Tailrace",
                )
        documents: list[tuple[str, dict[str, Any]]] = []
        bad = 0
        for file in files:
            if len(documents) < _PREVIEW_MAX:
                found, refused = _first_documents(state, file)
                documents += ((state.namespace_of(file.path), each) for each in found)
                bad += refused
        namespaces = sorted({state.namespace_of(file.path) for file in files})
        size = format_amount(sum(file.size for file in files), "byte")
        noun = "namespace" if len(namespaces) == 1 else "namespaces"
        sentence = f"{format_amount(len(files), 'file')}, {size}, {noun} {_some(namespaces)}"
        if bad:
            sentence += f"; {format_amount(bad, 'bad line')} in the preview"
        return Preview(sentence, documents[:_PREVIEW_MAX])

    def open(self, until: Until) -> FileReaderSession:
        """Open the reader; see `Reader.open`."""
        self._refuse_directory()
        return FileReaderSession(self, until)

    def _refuse_directory(self) -> None:
        if os.path.isdir(self.path):
            inside = os.path.join(self.path, "*.jsonl")
            raise InvalidValue("path", self.path, "a file or a glob", f"for example {inside}")

    def _no_files(self) -> Error:
        directory = os.path.dirname(self.path)
        while any(character in directory for character in "*?["):
            directory = os.path.dirname(directory)
        where, error = os.path.abspath(directory), f"no file matches {self.path!r}"
        if os.path.isdir(where):
            return NothingToRead(error, f"searched {where}", "check the path")
        return Error(
            error,
            f"searched {where}, which does not exist",
            "check the path, or create the directory",
        )


def _check_encoding(encoding: str) -> None:
    try:
        lines = "a\n".encode(codecs.lookup(encoding).name)
    except (LookupError, ValueError):
        lines = b""
    if lines != b"a\n":
        valid = "utf-8, latin-1, cp1252, or another codec that writes a newline as one byte"
        raise InvalidValue("encoding", encoding, valid)


def _first_documents(state: FileSessionState, file: FileInfo) -> tuple[list[dict[str, Any]], int]:
    """Return the first documents of a file, and the number of bad lines among them."""
    opened = state.open(file.path)
    if opened is None:
        return [], 0
    position = FilePosition(file.path, file.device, file.inode)
    try:
        chunk = state.format_of(file.path).read(opened, position, file.size, FileEnd.BOUNDED)
    except UnreadableFile as error:
        raise Error(f"{file.path} cannot be read: {error}") from error
    finally:
        opened.close()
    if chunk is None:
        return [], 0
    found = [_decode(value.as_py()) for value in chunk.values[:_PREVIEW_MAX]]
    return found, len(chunk.bad)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_PREVIEW_MAX])
    more = len(names) - _PREVIEW_MAX
    return f"{shown} and {more} more" if more > 0 else shown
