"""CSV: the first line names the columns; each following row becomes a JSON object."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.formats.columns import documents
from tailrace.readers.file.formats.format import BadLine, FileEnd
from tailrace.readers.file.formats.json_values import encode_identity, json_float
from tailrace.readers.file.formats.lines import LineFormat, ParsedLines, line_start

ColumnType: TypeAlias = Literal["str", "int", "float", "bool"]

_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}

_DAMAGE: Final = "\ufffd"
_UNDECODED: Final = re.compile("[\ud800-\udfff]")

_encode = msgspec.json.Encoder().encode


class CsvFormat(LineFormat):
    """Rows of delimited values. Quoted values may contain delimiters, quotes and newlines.

    Values are text, except in the columns of `types`, where an empty value is null.
    """

    def __init__(
        self,
        *,
        delimiter: str,
        types: Mapping[str, ColumnType],
        identity: tuple[str, ...],
        encoding: str,
        line_bytes_max: int,
    ) -> None:
        super().__init__(line_bytes_max)
        self.has_identities = bool(identity)
        self._delimiter = delimiter
        self._conversions = {name: _CONVERSIONS[kind] for name, kind in types.items()}
        self.identity = identity
        self._encoding = encoding
        self.decode_error = f"it is not {encoding}"
        # The default limit of the csv module is below line_bytes_max.
        csv.field_size_limit(max(csv.field_size_limit(), line_bytes_max))

    def parse(self, data: bytes, position: FilePosition, end: FileEnd) -> ParsedLines:
        """Parse the complete rows; see `LineFormat.parse`."""
        start = line_start(data, position)
        lines = io.BytesIO(data[start:]).readlines()
        final = end in (FileEnd.BOUNDED, FileEnd.FINAL)
        if lines and not lines[-1].endswith(b"\n") and not final:
            lines.pop()
        rows = _RowParser(self, lines, position)
        while rows.lines_read < len(lines) and rows.read_row(final):
            pass
        consumed = start + sum(map(len, lines[: rows.lines_read]))
        return ParsedLines(
            consumed=consumed,
            lines=rows.lines_read,
            values=documents(rows.values),
            identities=rows.identities if self.identity else None,
            bad=rows.bad,
            columns=rows.columns,
            in_line=bool(rows.lines_read) and not lines[rows.lines_read - 1].endswith(b"\n"),
        )

    def reader(self, lines: _LineFeed) -> Any:
        """Return a csv parser that pulls as many lines as a row has."""
        return csv.reader(lines, delimiter=self._delimiter)

    def lines(self, lines: list[bytes]) -> _LineFeed:
        """Return lines as text for the parser."""
        return _LineFeed(lines, self._encoding)

    def document(self, columns: tuple[str, ...], row: list[str]) -> dict[str, Any]:
        """Return a row as an object; raise `ValueError` if it does not match the header."""
        if _are_damaged(columns):
            header = self._delimiter.join(columns)
            raise ValueError(f"the header is not {self._encoding}: {header}; repair it")
        if len(row) != len(columns):
            raise ValueError(f"it has {len(row)} columns, the header has {len(columns)}")
        document: dict[str, Any] = dict(zip(columns, row, strict=True))
        for name, convert in self._conversions.items():
            if name in document:
                try:
                    document[name] = convert(document[name]) if document[name] else None
                except ValueError as error:
                    raise ValueError(f"column {name!r}: {error}") from error
        return document


class _LineFeed:
    """An iterator over lines; `exhausted` once the parser asked for more lines than there are."""

    def __init__(self, lines: list[bytes], encoding: str) -> None:
        self._lines = lines
        self._encoding = encoding
        self.lines_read = 0
        self.exhausted = False

    def __iter__(self) -> _LineFeed:
        return self

    def __next__(self) -> str:
        if self.lines_read == len(self._lines):
            self.exhausted = True
            raise StopIteration
        line = self._lines[self.lines_read]
        self.lines_read += 1
        return line.decode(self._encoding, "surrogateescape")


class _RowParser:
    """Parses lines into rows, one row at a time."""

    def __init__(self, format: CsvFormat, lines: list[bytes], position: FilePosition) -> None:
        self._format = format
        self._identity = format.identity
        self._lines = lines
        self._line = position.line
        self.columns = position.columns
        self.values: list[bytes] = []
        self.identities: list[bytes] = []
        self.bad: list[BadLine] = []
        self._feed = format.lines(lines)
        self._reader = format.reader(self._feed)

    @property
    def lines_read(self) -> int:
        """Number of lines in the rows parsed so far."""
        return self._feed.lines_read

    def read_row(self, final: bool) -> bool:
        """Parse one row, or record a bad one; return False if the row is not complete yet."""
        first = self.lines_read
        try:
            row = next(self._reader)
        except csv.Error as error:
            self._refuse(first, self.lines_read, f"it is not CSV: {error}")
            return True
        if self._feed.exhausted:
            if not final:
                self._continue_at(first)
                return False
            self._refuse(first, first + 1, "a quoted value is not closed")
            return True
        if not row or row == [""] or (len(row) == 1 and not row[0].strip()):
            return True
        if not self.columns:
            self.columns = _names(row)
            if _are_damaged(self.columns):
                self._add_bad(first, self.lines_read, self._format.decode_error)
            return True
        try:
            document = self._format.document(self.columns, row)
            value = _encode(document)
            if self._identity:
                self.identities.append(encode_identity(document, self._identity))
        except UnicodeEncodeError:
            self._add_bad(first, self.lines_read, self._format.decode_error)
        except ValueError as error:
            self._add_bad(first, self.lines_read, str(error))
        else:
            self.values.append(value)
        return True

    def _refuse(self, first: int, end: int, error: str) -> None:
        """Record bad lines, and restart the parser after them."""
        self._add_bad(first, end, error)
        self._continue_at(end)

    def _add_bad(self, first: int, end: int, error: str) -> None:
        value = b"".join(self._lines[first:end]).rstrip(b"\r\n")
        self.bad.append(BadLine(self._line + first + 1, error, value))

    def _continue_at(self, line: int) -> None:
        self._feed.lines_read = line
        self._feed.exhausted = False
        self._reader = self._format.reader(self._feed)


def _names(header: list[str]) -> tuple[str, ...]:
    """Return the column names of a header: none is empty, and none occurs twice.

    Bytes that could not be decoded become `_DAMAGE`, because a position stores the names as JSON.
    """
    names: list[str] = []
    for number, name in enumerate(header, 1):
        name = _UNDECODED.sub(_DAMAGE, name).strip() or f"column_{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return tuple(names)


def _are_damaged(columns: tuple[str, ...]) -> bool:
    return any(_DAMAGE in name for name in columns)


def _float(text: str) -> float | str:
    return json_float(float(text))


def _bool(text: str) -> bool:
    try:
        return _BOOLS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{text!r} is not true, false, 1 or 0") from None


_CONVERSIONS: Final[Mapping[ColumnType, Callable[[str], Any]]] = {
    "str": str,
    "int": int,
    "float": _float,
    "bool": _bool,
}
