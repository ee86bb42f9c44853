"""Types of columns in writing, such as ``list<struct<sku: string, price: decimal(10, 2)>>``."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from tailrace.errors import InvalidValue
from tailrace.pipeline.columns import json_column

VALID: Final = (
    "bool, int8, int16, int32, int64, float, double, string, json, binary, date, timestamp,"
    " decimal(P, S), list<TYPE>, struct<NAME: TYPE, …>"
)

_TOKEN: Final = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:]|$)")
_PLACE: Final = re.compile(r"(.*?)(?: - at `\$\[(\d+)\](.*)`)?", re.DOTALL)


class ColumnType(NamedTuple):
    """The type of a column in Arrow, and of its values in Python; None: anything, as its JSON."""

    arrow: pa.DataType
    python: Any


class Misfit(ValueError):
    """A value that is not of its column's type: which one, and why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index = index
        self.reason = reason


def _integer(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_JSON: Final = ColumnType(pa.string(), None)
_SCALARS: Final = {
    "bool": ColumnType(pa.bool_(), bool),
    "int8": ColumnType(pa.int8(), _integer(8)),
    "int16": ColumnType(pa.int16(), _integer(16)),
    "int32": ColumnType(pa.int32(), _integer(32)),
    "int64": ColumnType(pa.int64(), _integer(64)),
    "float": ColumnType(pa.float32(), float),
    "double": ColumnType(pa.float64(), float),
    "string": ColumnType(pa.string(), str),
    "binary": ColumnType(pa.binary(), bytes),
    "date": ColumnType(pa.date32(), date),
    "timestamp": ColumnType(pa.timestamp("us", "UTC"), datetime),
}


def parse_type(text: str) -> ColumnType:
    """Read a type; `InvalidValue` shows what there is."""
    if text.strip() == "json":
        return _JSON
    try:
        tokens = _tokens(text)
        found = _type(next(tokens), tokens)
        _expect(next(tokens), "")
        return found
    except (LookupError, ValueError, StopIteration):
        raise InvalidValue("the type of a column", text, VALID) from None


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(text)
        yield token.group(1)
        at = token.end()


def _type(word: str, tokens: Iterator[str]) -> ColumnType:
    if word == "decimal":
        opening, precision, comma, scale, closing = (next(tokens) for _ in range(5))
        _expect(opening + comma + closing, "(,)")
        return ColumnType(pa.decimal128(int(precision), int(scale)), Decimal)
    if word == "list":
        _expect(next(tokens), "<")
        inner = _type(next(tokens), tokens)
        _expect(next(tokens), ">")
        return ColumnType(pa.list_(inner.arrow), _list_of(inner.python))
    if word == "struct":
        return _struct(tokens)
    return _SCALARS[word]


def _struct(tokens: Iterator[str]) -> ColumnType:
    fields: dict[str, ColumnType] = {}
    separator = next(tokens)
    _expect(separator, "<")
    while separator in "<,":
        name = next(tokens)
        _expect(next(tokens), ":")
        fields[name] = _type(next(tokens), tokens)
        separator = next(tokens)
    _expect(separator, ">")
    arrow = pa.struct([(name, kind.arrow) for name, kind in fields.items()])
    python = {name: kind.python | None for name, kind in fields.items()}
    return ColumnType(arrow, TypedDict("struct", python, total=False))  # type: ignore[operator]


def _list_of(python: Any) -> Any:
    return types.GenericAlias(list, (python | None,))


def _expect(token: str, expected: str) -> None:
    if token != expected:
        raise ValueError(token)


def convert(values: list[Any], kind: ColumnType) -> pa.Array[Any]:
    """JSON's values as a column; `Misfit` for one that is not of the type.

    Dates and times are text as in RFC 3339, UTC where no offset is given; decimals are text or
    numbers; binary is base64. Of an object, a struct has the fields that it names.
    """
    if kind.python is None:
        return json_column(values)
    try:
        converted: Any = msgspec.convert(values, _list_of(kind.python))
    except msgspec.ValidationError as error:
        place = _PLACE.fullmatch(str(error))
        reason, index, path = place.groups() if place else (str(error), None, None)
        raise Misfit(int(index or 0), f"{reason} in {path}" if path else reason) from None
    try:
        return pa.array(converted, kind.arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise Misfit(0, str(error)) from None
