"""JSON lines: one object on each line.

Values are stored as they are in the file, so nothing is decoded: a whole chunk is validated at
once and sliced into a column at its newlines. Only a chunk with an error is parsed line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.readers.file.file_position import FilePosition
from tailrace.readers.file.formats.columns import documents, slice_column
from tailrace.readers.file.formats.format import BadLine, FileEnd
from tailrace.readers.file.formats.json_values import encode_identity, identity_error
from tailrace.readers.file.formats.lines import LineFormat, ParsedLines, line_start

_DIGITS_STEP: Final = 25
"""Stride at which digits are sampled: a run of more than 200 digits has at least eight samples."""


class _AnyObject(msgspec.Struct, gc=False):
    """Any JSON object; the decoder validates its fields and skips them."""


_decode_document = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class JsonLinesFormat(LineFormat):
    """One JSON object on each line, in any encoding that writes a newline as one byte.

    A last line without a newline is read if it is a complete object, since no further byte can
    change that object; otherwise it waits for the rest of the line.
    """

    def __init__(self, identity: tuple[str, ...], encoding: str, line_bytes_max: int) -> None:
        super().__init__(line_bytes_max)
        self.has_identities = bool(identity)
        self._identity = identity
        self._encoding = encoding
        fields = [(f"field_{number}", Any) for number in range(len(identity))]
        names = {name: field for (name, _), field in zip(fields, identity, strict=True)}
        kind = msgspec.defstruct("Row", fields, rename=names) if identity else _AnyObject
        self._large_numbers = _LargeNumbers()
        self._decode_lines = msgspec.json.Decoder(kind).decode_lines

    def parse(self, data: bytes, position: FilePosition, end: FileEnd) -> ParsedLines:
        """Parse the complete lines; see `LineFormat.parse`."""
        start = line_start(data, position)
        after = max(start, data.rfind(b"\n") + 1)  # the first byte after the complete lines
        rest = data[after:]
        reads_rest = end is not FileEnd.NOT_REACHED and bool(rest.strip())
        if reads_rest and end is not FileEnd.FINAL:
            reads_rest = not self._error(rest)
        body = data[start:] + b"\n" if reads_rest else data[start:after]
        parsed = self._lines(body, position.line, position.offset + start)
        consumed = len(data) if reads_rest else after
        return parsed._replace(consumed=consumed, in_line=reads_rest)

    def _lines(self, body: bytes, line: int, offset: int) -> ParsedLines:
        if not body:
            return ParsedLines(identities=() if self._identity else None)
        try:
            text = self._utf8(body)
        except UnicodeDecodeError:
            return self._line_by_line(body, line, offset)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        raw = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(raw == ord("\n"))
        starts = np.zeros_like(newlines)
        starts[1:] = newlines[:-1] + 1
        rows = self._objects(text, raw, starts, newlines)
        if rows is None:
            return self._line_by_line(body, line, offset)
        filled = newlines > starts
        values = slice_column(text, starts[filled], newlines[filled])
        identities = list(map(_identity_of, rows)) if self._identity else None
        return ParsedLines(lines=len(newlines), values=values, identities=identities)

    def _objects(
        self,
        text: bytes,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        newlines: npt.NDArray[np.int64],
    ) -> list[Any] | None:
        """Return the objects of all lines that are not empty; None if a line is not an object.

        The line decoder of msgspec ignores newlines. But if each line begins and ends with a brace,
        no object can span two lines, so as many objects as lines means one object on each line.
        """
        lengths = newlines - starts
        filled = lengths > 0
        first, last = raw[starts[filled]], raw[newlines[filled] - 1]
        if (first != ord("{")).any() or (last != ord("}")).any():
            return None
        if int(lengths.max()) > self.line_bytes_max or not _is_utf8(text):
            return None
        try:
            rows = self._decode_lines(text)
            for row in self._large_numbers.lines(raw, newlines):
                _decode_document(text[starts[row] : newlines[row]])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return rows if len(rows) == int(filled.sum()) else None

    def _line_by_line(self, body: bytes, line: int, offset: int) -> ParsedLines:
        values: list[bytes] = []
        identities: list[bytes] = []
        bad: list[BadLine] = []
        lines = body.split(b"\n")[:-1]
        for number, text in enumerate(lines, line + 1):
            start, offset = offset, offset + len(text) + 1
            text = text.removesuffix(b"\r")
            if not text.strip():
                continue
            if error := self._error(text):
                bad.append(BadLine(number, error, text, start))
                continue
            values.append(self._utf8(text))
            if self._identity:
                document = _decode_document(values[-1])
                identities.append(encode_identity(document, self._identity))
        found = identities if self._identity else None
        return ParsedLines(lines=len(lines), values=documents(values), identities=found, bad=bad)

    def _error(self, text: bytes) -> str:
        """Return the error of a line; empty if it is one object with all identity fields."""
        if len(text) > self.line_bytes_max:
            return self.too_long(len(text))
        try:
            document = _decode_document(self._utf8(text))
        except UnicodeDecodeError as error:
            return f"it is not {self._encoding}: {error.reason} at byte {error.start}"
        except msgspec.DecodeError as error:
            return f"it is not a JSON object: {error}"
        return identity_error(document, self._identity)

    def _utf8(self, text: bytes) -> bytes:
        if self._encoding == "utf-8":
            return text
        return text.decode(self._encoding).encode()


def _identity_of(row: msgspec.Struct) -> bytes:
    return _encode(msgspec.structs.astuple(row))


def _is_utf8(text: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(text)], np.int32).data)
    column: pa.Array[Any] = pa.Array.from_buffers(
        pa.string(), 1, [None, offsets, pa.py_buffer(text)]
    )
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class _LargeNumbers:
    """Finds the lines that may contain a number outside the range of a float.

    Such a number has an exponent of three digits or several hundred digits; only a full decode
    confirms it. The work arrays are reused, because allocating them costs more than the search.
    """

    def __init__(self) -> None:
        self._work = np.empty((2, 0), np.bool_)

    def lines(self, raw: npt.NDArray[np.uint8], newlines: npt.NDArray[np.int64]) -> Sequence[int]:
        """Return the indexes of those lines of `raw`; each line ends at one of `newlines`."""
        found = np.concatenate([self._exponents(raw), _digit_runs(raw)])
        lines: list[int] = np.unique(np.searchsorted(newlines, found)).tolist()
        return lines

    def _exponents(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return where an e is followed by three digits, with or without a plus sign."""
        if self._work.shape[1] < len(raw):
            self._work = np.empty((2, len(raw)), np.bool_)
        found, other = self._work[:, : len(raw) - 1]
        np.equal(raw[:-1], ord("e"), out=found)
        np.equal(raw[:-1], ord("E"), out=other)
        np.logical_or(found, other, out=found)
        np.subtract(raw[1:], ord("+"), out=other.view(np.uint8))
        np.less_equal(other.view(np.uint8), ord("9") - ord("+"), out=other)
        np.logical_and(found, other, out=found)
        indexes = np.flatnonzero(found)
        indexes += raw[indexes + 1] == ord("+")
        for ahead in (1, 2, 3):
            indexes = indexes[indexes + ahead < len(raw)]
            indexes = indexes[_are_digits(raw[indexes + ahead])]
        return indexes


def _digit_runs(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return where a run of digits is so long that a float cannot hold the number."""
    run = _are_digits(raw[::_DIGITS_STEP])
    for ahead in (1, 2, 4):
        run = run[:-ahead] & run[ahead:]
    return np.flatnonzero(run) * _DIGITS_STEP


def _are_digits(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return raw - np.uint8(ord("0")) < 10
