"""Parse column types, such as ``list<struct<sku: string, price: decimal(10, 2)>>``."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from tailrace.errors import InvalidValue
from tailrace.pipeline.transform.columns import json_column
from tailrace.writers.fitting import Misfit, to_boolean, to_integer, to_number, to_text

VALID: Final = (
    "bool, int8, int16, int32, int64, float, double, string, json, binary, date, timestamp,"
    " decimal(P, S), list<TYPE>, struct<NAME: TYPE, …>"
)

_TOKEN: Final = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:]|$)")
_ERROR_PATH: Final = re.compile(r"(.*?)(?: - at `\$\[(\d+)\](.*)`)?", re.DOTALL)


class ColumnType(NamedTuple):
    """The Arrow type of a column and the Python type of its values; None: any value, as JSON."""

    arrow: pa.DataType
    python: Any


class TypeMismatch(ValueError):
    """The value at `index` does not have its column's type."""

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


_FITS: Final[dict[Any, Callable[[Any], Any]]] = {
    pa.bool_(): to_boolean,
    pa.int8(): to_integer,
    pa.int16(): to_integer,
    pa.int32(): to_integer,
    pa.int64(): to_integer,
    pa.float32(): to_number,
    pa.float64(): to_number,
    pa.string(): to_text,
}


def parse_type(text: str) -> ColumnType:
    """Parse a type; raise `InvalidValue` with the valid ones."""
    if text.strip() == "json":
        return _JSON
    try:
        tokens = _tokens(text)
        found = _type(next(tokens), tokens)
        _expect(next(tokens), "")
        return found
    except (LookupError, ValueError, StopIteration):
        raise InvalidValue("the type of a column", text, VALID) from None


def type_text(kind: pa.DataType) -> str:
    """Return an Arrow type in the words of `parse_type`; text for a type that has no word."""
    if isinstance(kind, pa.ListType):
        return f"list<{type_text(kind.value_type)}>"
    if isinstance(kind, pa.StructType):
        fields = (f"{field.name}: {type_text(field.type)}" for field in kind.fields)
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return next((word for word, each in _SCALARS.items() if each.arrow == kind), "string")


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
    """Return JSON values as a column; raise `TypeMismatch` for a value of another type.

    Dates and times are RFC 3339 text, in UTC if they have no offset. Decimals are text or numbers.
    Binary is base64. Other types hold the values that `writers.fitting` allows. A struct has the
    fields of an object that it names.
    """
    if kind.python is None:
        return json_column(values)
    try:
        converted = _converted(values, kind)
    except msgspec.ValidationError as error:
        match = _ERROR_PATH.fullmatch(str(error))
        reason, index, path = match.groups() if match else (str(error), None, None)
        raise TypeMismatch(int(index or 0), f"{reason} in {path}" if path else reason) from None
    try:
        return pa.array(converted, kind.arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise TypeMismatch(0, str(error)) from None


def _converted(values: list[Any], kind: ColumnType) -> Any:
    """Return values of a type; `msgspec.ValidationError` names the first that cannot be."""
    wanted = _list_of(kind.python)
    try:
        return msgspec.convert(values, wanted)
    except msgspec.ValidationError:
        fit = _FITS.get(kind.arrow)
        if fit is None:
            raise
        return msgspec.convert([_fitted(value, fit) for value in values], wanted)


def _fitted(value: Any, fit: Callable[[Any], Any]) -> Any:
    """Return a value in the form in which a column holds it; the same if it cannot hold it."""
    try:
        return None if value is None else fit(value)
    except Misfit:
        return value
