"""CSV: the first line names the columns, and each row becomes an object of them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tailrace.readers.columns import documents
from tailrace.readers.lines import BadLine, Ending, LineFormat, Parsed, start_of
from tailrace.readers.place import Place

ColumnType: TypeAlias = Literal["str", "int", "float", "bool"]

_BOOLS: Final = {"true": True, "1": True, "false": False, "0": False}

_DAMAGE: Final = "\ufffd"
_UNDECODED: Final = re.compile("[\ud800-\udfff]")

_encode = msgspec.json.Encoder().encode


class Csv(LineFormat):
    """Rows of values between delimiters; quoted ones may hold delimiters, quotes and newlines.

    Values are text but for the columns of `types`, where an empty one is null.
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
        self._identity = identity
        self._encoding = encoding
        # The module's own limit is below what a line may have.
        csv.field_size_limit(max(csv.field_size_limit(), line_bytes_max))

    def parse(self, data: bytes, place: Place, ending: Ending) -> Parsed:
        """Take the whole rows; see `LineFormat.parse`."""
        start = start_of(data, place)
        lines = io.BytesIO(data[start:]).readlines()
        final = ending in (Ending.NOW, Ending.GONE)
        if lines and not lines[-1].endswith(b"\n") and not final:
            lines.pop()
        rows = _Rows(self, lines, place)
        while rows.taken < len(lines) and rows.take(final):
            pass
        consumed = start + sum(map(len, lines[: rows.taken]))
        return Parsed(
            consumed=consumed,
            lines=rows.taken,
            values=documents(rows.values),
            identities=rows.identities if self._identity else None,
            bad=rows.bad,
            columns=rows.columns,
            in_line=bool(rows.taken) and not lines[rows.taken - 1].endswith(b"\n"),
        )

    def reader(self, lines: _Lines) -> Any:
        """A parser that asks `lines` for as many as a row has."""
        return csv.reader(lines, delimiter=self._delimiter)

    def lines(self, lines: list[bytes]) -> _Lines:
        """Lines as text."""
        return _Lines(lines, self._encoding)

    def document(self, columns: tuple[str, ...], row: list[str]) -> dict[str, Any]:
        """A row as an object; `ValueError` when it is none."""
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

    def identity_of(self, document: dict[str, Any]) -> bytes:
        """What tells a row from others; `ValueError` when it lacks a part of that."""
        if missing := [name for name in self._identity if name not in document]:
            raise ValueError(f"it has no {', '.join(missing)}, part of its identity")
        return _encode([document[name] for name in self._identity])


class _Lines:
    """Lines, handed out one by one; `dry` once more were asked for than there are."""

    def __init__(self, lines: list[bytes], encoding: str) -> None:
        self._lines = lines
        self._encoding = encoding
        self.taken = 0
        self.dry = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.taken == len(self._lines):
            self.dry = True
            raise StopIteration
        line = self._lines[self.taken]
        self.taken += 1
        return line.decode(self._encoding, "surrogateescape")


class _Rows:
    """The rows of some lines, gathered one by one."""

    def __init__(self, format: Csv, lines: list[bytes], place: Place) -> None:
        self._format = format
        self._lines = lines
        self._line = place.line
        self.columns = place.columns
        self.values: list[bytes] = []
        self.identities: list[bytes] = []
        self.bad: list[BadLine] = []
        self._feed = format.lines(lines)
        self._reader = format.reader(self._feed)

    @property
    def taken(self) -> int:
        """How many lines the rows so far have."""
        return self._feed.taken

    def take(self, final: bool) -> bool:
        """Take one row, or what is bad; False when it is not whole yet."""
        first = self.taken
        try:
            row = next(self._reader)
        except csv.Error as error:
            self._refuse(first, self.taken, f"it is not CSV: {error}")
            return True
        if self._feed.dry:
            if not final:
                self._go_on_at(first)
                return False
            self._refuse(first, first + 1, "a quoted value does not end")
            return True
        if not row or row == [""] or (len(row) == 1 and not row[0].strip()):
            return True
        if not self.columns:
            self.columns = _names(row)
            if _are_damaged(self.columns):
                self._note(first, self.taken, "it is not in the encoding it should be in")
            return True
        try:
            document = self._format.document(self.columns, row)
            identity = self._format.identity_of(document)
            value = _encode(document)
        except UnicodeEncodeError:
            self._note(first, self.taken, "it is not in the encoding it should be in")
        except ValueError as error:
            self._note(first, self.taken, str(error))
        else:
            self.values.append(value)
            self.identities.append(identity)
        return True

    def _refuse(self, first: int, end: int, error: str) -> None:
        """Note what is bad, and parse on behind it with nothing left of it."""
        self._note(first, end, error)
        self._go_on_at(end)

    def _note(self, first: int, end: int, error: str) -> None:
        value = b"".join(self._lines[first:end]).rstrip(b"\r\n")
        self.bad.append(BadLine(self._line + first + 1, error, value))

    def _go_on_at(self, line: int) -> None:
        self._feed.taken = line
        self._feed.dry = False
        self._reader = self._format.reader(self._feed)


def _names(header: list[str]) -> tuple[str, ...]:
    """The names of the columns: none is empty, and none is there twice.

    A position holds them, so what could not be decoded becomes `_DAMAGE`.
    """
    names: list[str] = []
    for number, name in enumerate(header, 1):
        name = _UNDECODED.sub(_DAMAGE, name).strip() or f"column_{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return tuple(names)


def _are_damaged(columns: tuple[str, ...]) -> bool:
    return any(_DAMAGE in name for name in columns)


def _float(text: str) -> float | str:
    """A number, or the name of what JSON has no number for."""
    number = float(text)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _bool(text: str) -> bool:
    try:
        return _BOOLS[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true, false, 1 nor 0") from None


_CONVERSIONS: Final[Mapping[ColumnType, Callable[[str], Any]]] = {
    "str": str,
    "int": int,
    "float": _float,
    "bool": _bool,
}
