"""The type of a column that is found from its values, and how it widens.

A type starts as null and only widens, in the order of the records: null to any type, integers to
numbers, an object by a field, a list by the type of its items. Text holds everything. Integers
beyond 2^53 would lose digits as numbers, so a column with such integers does not widen to numbers.
A declared type does not widen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from tailrace.pipeline.transform.columns import without_nulls
from tailrace.writers.fitting import (
    EXACT_MAX,
    INTEGER_MAX,
    INTEGER_MIN,
    FractionalNumber,
    Misfit,
    misfit,
    to_boolean,
    to_integer,
    to_number,
    to_text,
)


class ScalarType(StrEnum):
    """The types of values without parts. Only `LARGE_INTEGER` has integers beyond 2^53."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    LARGE_INTEGER = "large integer"
    NUMBER = "number"
    TEXT = "text"


class ListOf(msgspec.Struct, frozen=True, tag="list"):
    """Lists."""

    item: ValueType


class ObjectOf(msgspec.Struct, frozen=True, tag="object"):
    """Objects. A field that an object lacks is null in it."""

    fields: dict[str, ValueType]


class Declared(msgspec.Struct, frozen=True, tag="declared"):
    """A type in the words of the option `schema`."""

    text: str


ValueType: TypeAlias = "ScalarType | ListOf | ObjectOf | Declared"

_INTEGERS: Final = (ScalarType.INTEGER, ScalarType.LARGE_INTEGER)
_CONVERSIONS: Final[dict[ScalarType, Callable[[Any], Any]]] = {
    ScalarType.BOOLEAN: to_boolean,
    ScalarType.INTEGER: to_integer,
    ScalarType.LARGE_INTEGER: to_integer,
    ScalarType.NUMBER: to_number,
    ScalarType.TEXT: to_text,
}


def absorb(known: ValueType, new: ValueType) -> ValueType | None:
    """Return a type widened by the type of later values; None if it cannot hold all of them."""
    if known is ScalarType.TEXT or new is ScalarType.NULL or known == new:
        return known
    if known is ScalarType.NULL:
        return new
    match known, new:
        case ListOf(), ListOf():
            item = absorb(known.item, new.item)
            return None if item is None else ListOf(item)
        case ObjectOf(), ObjectOf():
            fields = absorb_fields(known.fields, new.fields)
            return None if fields is None else ObjectOf(fields)
        case ScalarType(), ScalarType():
            return _absorb_scalar(known, new)
    return None


def absorb_fields(
    known: Mapping[str, ValueType], new: Mapping[str, ValueType]
) -> dict[str, ValueType] | None:
    """Return fields widened by those of later objects, in the order in which they first occur."""
    fields = dict(known)
    for name, kind in new.items():
        wider = absorb(fields.get(name, ScalarType.NULL), kind)
        if wider is None:
            return None
        fields[name] = wider
    return fields


def _absorb_scalar(known: ScalarType, new: ScalarType) -> ScalarType | None:
    if known in _INTEGERS and new in _INTEGERS:
        return ScalarType.LARGE_INTEGER
    if {known, new} == {ScalarType.INTEGER, ScalarType.NUMBER}:
        return ScalarType.NUMBER
    return None


def accept(known: ValueType, value: Any) -> ValueType:
    """Return a type widened by a value; raise `Misfit` if a column of the type cannot hold it.

    The first value of a column makes it text if no other type can hold the value: its own parts
    have no common type, as in ``[1, "x"]``, or it is an integer beyond 64 bits.
    """
    if value is None or known is ScalarType.TEXT:
        return known
    if known is ScalarType.NULL:
        try:
            return _first(value)
        except Misfit:
            return ScalarType.TEXT
    match known, value:
        case ListOf(), list() | tuple():
            return ListOf(_accept_items(known.item, value))
        case ObjectOf(), dict():
            return ObjectOf(_accept_fields(known.fields, value))
        case ScalarType(), _:
            return _accept_scalar(known, value)
    raise misfit(value, describe(known))


class _PartMisfit(Misfit):
    """A part of a value that its column cannot hold. `path` leads to the part."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(f"{reason} in {path}")
        self.reason = reason
        self.path = path


def _first(value: Any) -> ValueType:
    match value:
        case bool():
            return ScalarType.BOOLEAN
        case int():
            return _integer_type(to_integer(value))
        case float():
            return ScalarType.NUMBER
        case list() | tuple():
            return ListOf(_accept_items(ScalarType.NULL, value))
        case dict():
            return ObjectOf(_accept_fields({}, value))
        case datetime():
            return Declared("timestamp")
        case date():
            return Declared("date")
        case bytes() | bytearray():
            return Declared("binary")
    to_text(value)
    return ScalarType.TEXT


def _accept_items(item: ValueType, values: Any) -> ValueType:
    for index, each in enumerate(values):
        item = _accept_part(item, each, f"[{index}]")
    return item


def _accept_fields(
    fields: Mapping[str, ValueType], value: Mapping[str, Any]
) -> dict[str, ValueType]:
    accepted = dict(fields)
    for name, each in value.items():
        if each is not None:
            accepted[name] = _accept_part(accepted.get(name, ScalarType.NULL), each, f".{name}")
    return accepted


def _accept_part(known: ValueType, value: Any, where: str) -> ValueType:
    try:
        found = accept(known, value)
    except _PartMisfit as error:
        raise _PartMisfit(error.reason, where + error.path) from None
    except Misfit as error:
        raise _PartMisfit(str(error), where) from None
    # Times and bytes have columns of their own; within a value they are text, as in JSON.
    return ScalarType.TEXT if isinstance(found, Declared) else found


def _accept_scalar(known: ScalarType, value: Any) -> ScalarType:
    if known is ScalarType.INTEGER and type(value) is float:
        return ScalarType.NUMBER
    try:
        converted = _CONVERSIONS[known](value)
    except FractionalNumber:
        raise Misfit(
            f"{value!r} is not an integer, and the column has integers beyond 2^53, which would"
            " lose digits if it were widened"
        ) from None
    return _integer_type(converted) if known is ScalarType.INTEGER else known


def _integer_type(value: int) -> ScalarType:
    assert INTEGER_MIN <= value <= INTEGER_MAX
    return ScalarType.LARGE_INTEGER if abs(value) > EXACT_MAX else ScalarType.INTEGER


def convert_value(value: Any, kind: ValueType) -> Any:
    """Return an accepted value in the form that a column of the type stores."""
    if value is None or kind is ScalarType.NULL:
        return None
    match kind:
        case ListOf():
            return [convert_value(each, kind.item) for each in value]
        case ObjectOf(fields) if fields:
            return {name: convert_value(value.get(name), each) for name, each in fields.items()}
        case ObjectOf():
            return "{}"
        case ScalarType.TEXT:
            return to_text(without_nulls(value))
        case ScalarType():
            return _CONVERSIONS[kind](value)
    return value


def describe(kind: ValueType) -> str:
    """Return the values of a type, for people."""
    match kind:
        case ListOf():
            return "lists"
        case ObjectOf():
            return "objects"
        case Declared(text):
            return text
    return {
        ScalarType.BOOLEAN: "true and false",
        ScalarType.INTEGER: "integers",
        ScalarType.LARGE_INTEGER: "integers",
        ScalarType.NUMBER: "numbers",
    }.get(kind, "text")
