"""JSON lines: one object on each line.

Values are stored as they stand in the file, so nothing is decoded: a whole chunk is validated at
once, and cut into a column by where its newlines are. Only a chunk with something wrong in it is
looked at line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.readers.columns import cut, documents
from tailrace.readers.lines import BadLine, Ending, LineFormat, Parsed, start_of
from tailrace.readers.place import Place

_DIGITS_STEP: Final = 25
"""Of more than 200 digits in a row, at least eight are this far apart."""


class _Object(msgspec.Struct, gc=False):
    """Any JSON object; its fields are checked and passed over."""


_decode_document = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class JsonLines(LineFormat):
    """One JSON object a line, in any encoding that leaves newlines as they are.

    A last line without a newline is taken when it is a whole object, which no further byte could
    make another one; else it waits for the rest.
    """

    def __init__(self, identity: tuple[str, ...], encoding: str, line_bytes_max: int) -> None:
        super().__init__(line_bytes_max)
        self.has_identities = bool(identity)
        self._identity = identity
        self._encoding = encoding
        fields = [(f"field_{number}", Any) for number in range(len(identity))]
        names = {name: field for (name, _), field in zip(fields, identity, strict=True)}
        kind = msgspec.defstruct("Row", fields, rename=names) if identity else _Object
        self._large_numbers = _LargeNumbers()
        self._decode_lines = msgspec.json.Decoder(kind).decode_lines

    def parse(self, data: bytes, place: Place, ending: Ending) -> Parsed:
        """Take the whole lines; see `LineFormat.parse`."""
        start, end = start_of(data, place), data.rfind(b"\n") + 1
        rest = data[max(start, end) :]
        takes_rest = ending is not Ending.MORE and bool(rest.strip())
        if takes_rest and ending is not Ending.GONE:
            takes_rest = not self._error(rest)
        body = data[start:] + b"\n" if takes_rest else data[start:end]
        parsed = self._lines(body, place.line)
        consumed = len(data) if takes_rest else max(start, end)
        return parsed._replace(consumed=consumed, in_line=takes_rest)

    def _lines(self, body: bytes, line: int) -> Parsed:
        if not body:
            return Parsed(identities=() if self._identity else None)
        try:
            text = self._utf8(body)
        except UnicodeDecodeError:
            return self._line_by_line(body, line)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        raw = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(raw == ord("\n"))
        starts = np.zeros_like(newlines)
        starts[1:] = newlines[:-1] + 1
        rows = self._objects(text, raw, starts, newlines)
        if rows is None:
            return self._line_by_line(body, line)
        filled = newlines > starts
        values = cut(text, starts[filled], newlines[filled])
        identities = list(map(_identity_of, rows)) if self._identity else None
        return Parsed(lines=len(newlines), values=values, identities=identities)

    def _objects(
        self,
        text: bytes,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        newlines: npt.NDArray[np.int64],
    ) -> list[Any] | None:
        """The objects of all lines that are not empty; None when one of them is no object.

        A decoder of lines minds no newline. But where each line begins with a brace and ends with
        one, no object can go on from line to line, so as many objects as lines are one on each.
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

    def _line_by_line(self, body: bytes, line: int) -> Parsed:
        values: list[bytes] = []
        identities: list[bytes] = []
        bad: list[BadLine] = []
        lines = body.split(b"\n")[:-1]
        for number, text in enumerate(lines, line + 1):
            text = text.removesuffix(b"\r")
            if not text.strip():
                continue
            if error := self._error(text):
                bad.append(BadLine(number, error, text))
                continue
            values.append(self._utf8(text))
            if self._identity:
                document = _decode_document(values[-1])
                identities.append(_encode([document[name] for name in self._identity]))
        found = identities if self._identity else None
        return Parsed(lines=len(lines), values=documents(values), identities=found, bad=bad)

    def _error(self, text: bytes) -> str:
        """What is wrong with a line; empty when it is one object that has an identity."""
        if len(text) > self.line_bytes_max:
            return self.too_long(len(text))
        try:
            document = _decode_document(self._utf8(text))
        except UnicodeDecodeError as error:
            return f"it is not {self._encoding}: {error.reason} at byte {error.start}"
        except msgspec.DecodeError as error:
            return f"it is not a JSON object: {error}"
        missing = [name for name in self._identity if name not in document]
        return f"it has no {', '.join(missing)}, part of its identity" if missing else ""

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
    """Finds the lines that may hold a number beyond what a float has.

    Only a full decoding tells whether they do. Such a number has an exponent of three digits or
    several hundred digits. What it works in is kept: memory that is new each time costs more than
    the work.
    """

    def __init__(self) -> None:
        self._work = np.empty((2, 0), np.bool_)

    def lines(self, raw: npt.NDArray[np.uint8], newlines: npt.NDArray[np.int64]) -> Sequence[int]:
        """The numbers of those lines of `raw`, each of which ends at a newline."""
        found = np.concatenate([self._exponents(raw), _digit_runs(raw)])
        lines: list[int] = np.unique(np.searchsorted(newlines, found)).tolist()
        return lines

    def _exponents(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Where an e is followed by three digits, with or without a plus sign."""
        if self._work.shape[1] < len(raw):
            self._work = np.empty((2, len(raw)), np.bool_)
        found, other = self._work[:, : len(raw) - 1]
        np.equal(raw[:-1], ord("e"), out=found)
        np.equal(raw[:-1], ord("E"), out=other)
        np.logical_or(found, other, out=found)
        np.subtract(raw[1:], ord("+"), out=other.view(np.uint8))
        np.less_equal(other.view(np.uint8), ord("9") - ord("+"), out=other)
        np.logical_and(found, other, out=found)
        places = np.flatnonzero(found)
        places += raw[places + 1] == ord("+")
        for ahead in (1, 2, 3):
            places = places[places + ahead < len(raw)]
            places = places[_are_digits(raw[places + ahead])]
        return places


def _digit_runs(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where digits go on for so long that they are more than a float can hold."""
    run = _are_digits(raw[::_DIGITS_STEP])
    for ahead in (1, 2, 4):
        run = run[:-ahead] & run[ahead:]
    return np.flatnonzero(run) * _DIGITS_STEP


def _are_digits(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return raw - np.uint8(ord("0")) < 10
