"""JSON values to what a column takes, and the types of columns made for JSON values.

Readers write some types as strings so that JSON holds them exactly: numbers of any precision, times
(RFC 3339), bytes (base64). The database's own types read such strings; what they do not read is
converted here. A column gets the same value whether its row comes alone or among thousands.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import (
    ARRAY,
    BINARY,
    JSON,
    VARBINARY,
    BigInteger,
    Boolean,
    DateTime,
    Double,
    Float,
    Integer,
    LargeBinary,
    Numeric,
    String,
    Text,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.dialects.postgresql import DOMAIN, JSONB
from sqlalchemy.types import TypeEngine

Convert: TypeAlias = Callable[[Any], Any]
"""A JSON value that is not null, to what the driver takes; `ValueError` says what is wrong."""


class Conversion(NamedTuple):
    """How values reach a column: those of the types that it `passes` as they are."""

    convert: Convert
    passes: frozenset[type]


_KEY_CHARACTERS = 255


class Kind(Enum):
    """What a column made for JSON values holds."""

    INTEGER = "integers"
    NUMBER = "numbers"
    BOOLEAN = "true or false"
    TEXT = "text"
    NESTED = "objects and arrays, or anything"


_KINDS = {
    int: Kind.INTEGER,
    float: Kind.NUMBER,
    bool: Kind.BOOLEAN,
    str: Kind.TEXT,
    dict: Kind.NESTED,
    list: Kind.NESTED,
}


def kind_of(values: Iterable[Any]) -> Kind | None:
    """What a column for all these values must hold; None if all are null."""
    kinds = {_KINDS[each] for each in set(map(type, values)) - {type(None)}}
    if len(kinds) < 2:
        return next(iter(kinds), None)
    if kinds == {Kind.INTEGER, Kind.NUMBER}:
        return Kind.NUMBER
    return Kind.NESTED if Kind.NESTED in kinds else Kind.TEXT


def type_for(kind: Kind, *, key: bool, dialect: str) -> TypeEngine[Any]:
    """The type of a new column; of a text in a key where keys have a length, up to 255."""
    match kind:
        case Kind.INTEGER:
            return BigInteger()
        case Kind.NUMBER:
            return Double()
        case Kind.BOOLEAN:
            return Boolean()
        case Kind.NESTED if dialect == "postgresql":
            return JSONB()
    if dialect in ("mysql", "mariadb"):
        return String(_KEY_CHARACTERS) if key else LONGTEXT()
    return Text()


def conversion(dialect: str, kind: TypeEngine[Any]) -> Conversion:
    """How values reach a column of this type."""
    if isinstance(kind, LargeBinary | BINARY | VARBINARY):
        return _passing(_bytes)
    if isinstance(kind, JSON):
        return _passing(_json)
    if dialect == "postgresql":
        return _postgres(kind)
    if dialect == "sqlite":
        return _passing(_scalar, int, float, bool, str)
    if isinstance(kind, DateTime):
        return _passing(_datetime)
    if isinstance(kind, Integer):
        return _passing(_integer, int, bool, str)
    return _passing(_scalar, int, float, bool, str)


def _postgres(kind: TypeEngine[Any]) -> Conversion:
    if isinstance(kind, DOMAIN):
        return conversion("postgresql", kind.data_type)
    if isinstance(kind, ARRAY):
        item = conversion("postgresql", kind.item_type).convert
        return _passing(lambda value: _array(value, item))
    if isinstance(kind, Integer):
        return _passing(_integer, int, bool, str)
    if isinstance(kind, Float):
        return _passing(_scalar, int, float, bool, str)
    if isinstance(kind, Numeric | Boolean):
        return _passing(_number, bool, str)
    return _passing(_text, str)


def _passing(convert: Convert, *passes: type) -> Conversion:
    return Conversion(convert, frozenset((*passes, type(None))))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> Any:
    return value if type(value) is str else _json(value)


def _scalar(value: Any) -> Any:
    return _json(value) if type(value) in (dict, list) else value


def _number(value: Any) -> Any:
    return value if type(value) in (str, bool) else _json(value)


def _integer(value: Any) -> Any:
    if type(value) is not float:
        return _scalar(value)
    if not value.is_integer():
        raise ValueError(f"it holds integers, and {value!r} is none: change the column's type")
    return int(value)


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError("it holds bytes, and the value is no base64") from None


def _datetime(value: Any) -> Any:
    """Without a zone, in UTC, for databases whose times have none."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _array(value: Any, item: Convert) -> str:
    """An array in PostgreSQL's own writing."""
    if type(value) is not list:
        raise ValueError("it holds arrays, and the value is none")
    return "{" + ",".join(_element(each, item) for each in value) + "}"


def _element(value: Any, item: Convert) -> str:
    if value is None:
        return "NULL"
    if type(value) is list and item is not _json:
        return _array(value, item)
    converted = item(value)
    if isinstance(converted, bytes):
        converted = "\\x" + converted.hex()
    text = converted if isinstance(converted, str) else _json(converted)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
