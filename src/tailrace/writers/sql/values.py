"""Convert JSON values for columns, and choose the types of new columns.

Readers write some types as strings, because JSON cannot hold them exactly: numbers of any
precision, times (RFC 3339), bytes (base64). Databases parse most of these strings; the others are
converted here. The stored value does not depend on the size of the batch.
"""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    ARRAY,
    BINARY,
    JSON,
    VARBINARY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    String,
    Text,
    func,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.dialects.postgresql import DOMAIN, JSONB
from sqlalchemy.types import TypeEngine

from tailrace.writers.fitting import (
    INTEGER_MAX,
    INTEGER_MIN,
    Misfit,
    is_number_text,
    misfit,
    to_boolean,
    to_integer,
    to_json,
    to_nested,
    to_number,
    to_text,
)

Convert: TypeAlias = Callable[[Any], Any]
"""Convert a JSON value that is not null for the driver; raise `ValueError` if it cannot."""


class Conversion(NamedTuple):
    """The conversion of a column. Values of the types in `passes` need none."""

    convert: Convert
    passes: frozenset[type]


_KEY_CHARACTERS = 255
_MYSQL = ("mysql", "mariadb")


class ColumnKind(Enum):
    """The kind of JSON values for which a column is created."""

    INTEGER = "integers"
    NUMBER = "numbers"
    BOOLEAN = "true or false"
    TEXT = "text"
    NESTED = "objects and arrays"


_KINDS = {
    int: ColumnKind.INTEGER,
    float: ColumnKind.NUMBER,
    bool: ColumnKind.BOOLEAN,
    str: ColumnKind.TEXT,
    dict: ColumnKind.NESTED,
    list: ColumnKind.NESTED,
}
_FITS: dict[ColumnKind, Convert] = {
    ColumnKind.INTEGER: to_integer,
    ColumnKind.NUMBER: to_number,
    ColumnKind.BOOLEAN: to_boolean,
    ColumnKind.NESTED: to_nested,
}


def column_kind(values: Iterable[Any]) -> ColumnKind | None:
    """Return the kind of column that can hold all values; None if all are null.

    The first value decides, and integers become numbers if a number follows. An integer beyond 64
    bits that comes first makes the column text. Raises `Misfit` for a value that a column of that
    kind cannot hold.
    """
    found = [each for each in values if each is not None]
    kinds = {_KINDS[each] for each in set(map(type, found))}
    if not kinds:
        return None
    kind = _KINDS[type(found[0])]
    if kind is ColumnKind.INTEGER:
        if not INTEGER_MIN <= found[0] <= INTEGER_MAX:
            return ColumnKind.TEXT
        kind = ColumnKind.NUMBER if ColumnKind.NUMBER in kinds else kind
    if len(kinds) > 1 and kind in _FITS:
        for each in found:
            _FITS[kind](each)
    return kind


def column_type(kind: ColumnKind, *, key: bool, dialect: str) -> TypeEngine[Any]:
    """Return the type of a new column. MySQL limits text in a key to 255 characters."""
    match kind:
        case ColumnKind.INTEGER:
            return BigInteger()
        case ColumnKind.NUMBER:
            return Double()
        case ColumnKind.BOOLEAN:
            return Boolean()
        case ColumnKind.NESTED if dialect == "postgresql":
            return JSONB()
        case ColumnKind.NESTED if dialect == "sqlite":
            return JSON()
    if dialect in _MYSQL:
        return String(_KEY_CHARACTERS) if key else LONGTEXT()
    return Text()


def column_check(name: str, kind: ColumnKind, *, dialect: str) -> CheckConstraint | None:
    """Return the constraint of a new column.

    `JSONB` columns of tables that others created hold any value. So the constraint, and not the
    type, states that a column of the writer holds objects and arrays. SQLite does not alter tables
    that have constraints; there the declared type is the sign.
    """
    if kind is not ColumnKind.NESTED or dialect != "postgresql":
        return None
    found = func.jsonb_typeof(Column(name, quote=True))
    return CheckConstraint((found == "object") | (found == "array"))


def conversion(dialect: str, kind: TypeEngine[Any]) -> Conversion:
    """Return the conversion of values for a column of this type."""
    if isinstance(kind, LargeBinary | BINARY | VARBINARY):
        return _passing(_bytes)
    if isinstance(kind, JSON):
        return _passing(to_nested if dialect == "sqlite" else to_json)
    if isinstance(kind, DOMAIN):
        return conversion(dialect, kind.data_type)
    if isinstance(kind, ARRAY):
        item = conversion(dialect, kind.item_type).convert
        return _passing(lambda value: _array(value, item))
    if isinstance(kind, Boolean):
        return _passing(to_boolean, bool)
    if isinstance(kind, Integer):
        # MySQL has no boolean type: it stores true and false as integers.
        return _passing(to_integer, int, *((bool,) if dialect in _MYSQL else ()))
    if isinstance(kind, Float):
        return _passing(_sqlite_number if dialect == "sqlite" else to_number, float)
    if isinstance(kind, Numeric) and dialect != "sqlite":  # SQLite: also types it does not know.
        return _passing(_decimal)
    if isinstance(kind, String) or dialect == "postgresql":
        return _passing(to_text, str)
    if isinstance(kind, DateTime) and dialect != "sqlite":
        return _passing(_datetime)
    return _passing(_scalar, int, float, bool, str)


def _passing(convert: Convert, *passes: type) -> Conversion:
    return Conversion(convert, frozenset((*passes, type(None))))


def _scalar(value: Any) -> Any:
    return to_json(value) if type(value) in (dict, list) else value


def _sqlite_number(value: Any) -> float:
    number = to_number(value)
    if math.isnan(number):  # SQLite would store null.
        raise Misfit("SQLite has no NaN")
    return number


def _decimal(value: Any) -> str:
    """Return a number with all its digits."""
    if type(value) in (int, float):
        return to_json(value)
    if type(value) is str and is_number_text(value):
        return value
    raise misfit(value, "numbers")


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("the value is not base64, and the column holds bytes") from None


def _datetime(value: Any) -> Any:
    """Return a time in UTC without an offset, for databases whose times have no time zone."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _array(value: Any, item: Convert) -> str:
    """Return a list as an array literal of PostgreSQL."""
    if type(value) is not list:
        raise ValueError("the value is not a list, and the column holds arrays")
    return "{" + ",".join(_element(each, item) for each in value) + "}"


def _element(value: Any, item: Convert) -> str:
    if value is None:
        return "NULL"
    if type(value) is list and item is not to_json:
        return _array(value, item)
    converted = item(value)
    if isinstance(converted, bytes):
        converted = "\\x" + converted.hex()
    text = converted if isinstance(converted, str) else to_json(converted)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
