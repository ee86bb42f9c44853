"""The one rule for a JSON value and the column that is to hold it, in files and in databases.

A column holds values of one kind. A value of another kind is stored only if the column can hold it
without a loss:

* A text column holds any value: text as it is, other values as JSON.
* A column of integers holds 64-bit integers; a number such as ``3.0`` is one.
* A column of numbers (double precision) holds numbers, and integers up to 2^53.
* A column of true and false also holds 0 and 1.
* A column of objects or arrays holds nothing else.
* Text that is a JSON number, such as ``"12.50"``, is that number in a numeric column; text that is
  ``true`` or ``false`` is that value in a column of them. Other text is refused, and so is
  ``"007"``: as a number, it would lose its zeros.

A fraction in a column of integers raises `FractionalNumber`: the column may be widened to numbers.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

EXACT_MAX: Final = 1 << 53
"""Integers up to this magnitude are exact in double precision."""

INTEGER_MIN: Final = -(1 << 63)
INTEGER_MAX: Final = (1 << 63) - 1

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_SHOWN_CHARACTERS_MAX: Final = 60

_encode = msgspec.json.Encoder().encode


class Misfit(ValueError):
    """A value that its column cannot hold."""


class FractionalNumber(Misfit):
    """A fraction for a column of integers, which could be widened to numbers."""


def to_json(value: Any) -> str:
    """Return a value as JSON."""
    return _encode(value).decode()


def to_text(value: Any) -> str:
    """Return a value for a text column."""
    if type(value) is str:
        return value
    encoded = _encode(value)
    # Times, decimals and bytes are text in JSON; their quotes are not part of the value.
    return msgspec.json.decode(encoded, type=str) if encoded[:1] == b'"' else encoded.decode()


def to_integer(value: Any) -> int:
    """Return a value for a column of integers."""
    kind = type(value)
    if kind is int or (kind is str and _INTEGER.fullmatch(value)):
        number = int(value)
        if not INTEGER_MIN <= number <= INTEGER_MAX:
            raise Misfit(f"{number} is too large for an integer of 64 bits")
        return number
    if kind is float:
        if not value.is_integer():
            raise FractionalNumber(f"{value!r} is not an integer")
        return to_integer(int(value))
    raise misfit(value, "integers")


def to_number(value: Any) -> float:
    """Return a value for a column of numbers in double precision."""
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int:
        if abs(value) > EXACT_MAX:
            raise Misfit(f"{value} would lose digits in a column of double precision")
        return float(value)
    if kind is str and is_number_text(value):
        return float(value)
    raise misfit(value, "numbers")


def to_boolean(value: Any) -> bool:
    """Return a value for a column of true and false."""
    found = _BOOLEANS.get(value if type(value) is str else to_json(value))
    if found is None:
        raise misfit(value, "true and false")
    return found


def to_nested(value: Any) -> str:
    """Return an object or an array as JSON, for a column of them."""
    if type(value) not in (dict, list):
        raise misfit(value, "objects and arrays")
    return to_json(value)


def is_number_text(text: str) -> bool:
    """True if text is a JSON number, or a number of double precision that JSON lacks."""
    return _NUMBER.fullmatch(text) is not None or text in _NOT_FINITE


def misfit(value: Any, column: str) -> Misfit:
    """Return the error for a value of another kind than its column."""
    shown = to_json(value)
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = f"{shown[:_SHOWN_CHARACTERS_MAX]}…"
    return Misfit(f"{shown} is {_kind_of(value)}, and the column holds {column}")


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
    return "text"
