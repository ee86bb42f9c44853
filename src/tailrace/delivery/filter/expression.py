"""The parts of a filter expression, and what they mean for one message.

Keys, headers and the values of an expression are compared as bytes; the values are UTF-8. Bytes of
UTF-8 have the order of code points, so ``'10' < '9'`` and ``'Z' < 'a'``. A test of a header that a
message lacks is false, also with ``!=``; ``not`` of it is true. A message without a key lacks it.
``str()`` of an expression is text that parses to the same expression.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from tailrace.regular_expression import search

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLASH: Final = re.compile(r"\\.|/", re.DOTALL)
ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
"""The characters that a backslash stands for in a text, by the letter after it."""
_ESCAPED: Final = {
    ord(character): f"\\{letter}" for letter, character in ESCAPES.items() if letter != '"'
}


@dataclass(frozen=True, slots=True)
class MessageField:
    """What a test is about: a header, or the key if `header` is None."""

    header: str | None

    def __str__(self) -> str:
        if self.header is None:
            return "key"
        if _PLAIN_NAME.fullmatch(self.header):
            return f"header.{self.header}"
        return f"header[{_quoted(self.header.encode())}]"

    def value(self, key: bytes | None, headers: Mapping[str, bytes]) -> bytes | None:
        """Return the value in a message; None if the message lacks it."""
        return (key or None) if self.header is None else headers.get(self.header)


class Comparator(Enum):
    """How a value is compared."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


_COMPARE: Final[Mapping[Comparator, Callable[[bytes, bytes], bool]]] = {
    Comparator.EQUAL: operator.eq,
    Comparator.NOT_EQUAL: operator.ne,
    Comparator.LESS: operator.lt,
    Comparator.LESS_EQUAL: operator.le,
    Comparator.GREATER: operator.gt,
    Comparator.GREATER_EQUAL: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """``header.country == 'IN'``."""

    field: MessageField
    comparator: Comparator
    value: bytes

    def __str__(self) -> str:
        return f"{self.field} {self.comparator.value} {_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """``header.country in ('IN', 'US')``."""

    field: MessageField
    values: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"{self.field} in ({', '.join(map(_quoted, self.values))})"


@dataclass(frozen=True, slots=True)
class Matched:
    """``key matches /^eu-/``: the expression is found in the value. Bytes that are not UTF-8 match
    no expression."""

    field: MessageField
    expression: str

    def __str__(self) -> str:
        return f"{self.field} matches /{_SLASH.sub(_escaped_slash, self.expression)}/"


@dataclass(frozen=True, slots=True)
class Exists:
    """``header.country exists``."""

    field: MessageField

    def __str__(self) -> str:
        return f"{self.field} exists"


@dataclass(frozen=True, slots=True)
class Negated:
    """``not …``."""

    part: Expression

    def __str__(self) -> str:
        return f"not {_in_parentheses(self.part, AllOf, AnyOf)}"


@dataclass(frozen=True, slots=True)
class AllOf:
    """``… and …``, of two parts or more."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(_in_parentheses(part, AllOf, AnyOf) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """``… or …``, of two parts or more."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(_in_parentheses(part, AnyOf) for part in self.parts)


Test: TypeAlias = "Compared | OneOf | Matched | Exists"
"""A condition on one field. It is false for a message that lacks the field."""

Expression: TypeAlias = "Test | Negated | AllOf | AnyOf"


def holds(expression: Expression, key: bytes | None, headers: Mapping[str, bytes]) -> bool:
    """Return True if an expression is true for a message."""
    match expression:
        case AllOf(parts):
            return all(holds(part, key, headers) for part in parts)
        case AnyOf(parts):
            return any(holds(part, key, headers) for part in parts)
        case Negated(part):
            return not holds(part, key, headers)
    value = expression.field.value(key, headers)
    return value is not None and _holds_for(expression, value)


def _holds_for(test: Test, value: bytes) -> bool:
    match test:
        case Compared(_, comparator, other):
            return _COMPARE[comparator](value, other)
        case OneOf(_, values):
            return value in values
        case Matched(_, expression):
            return search(expression, (utf8(value),))[0]
        case Exists():
            return True


def utf8(value: bytes) -> str | None:
    """Return bytes as text; None if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _quoted(value: bytes) -> str:
    return f"'{value.decode().translate(_ESCAPED)}'"


def _escaped_slash(found: re.Match[str]) -> str:
    return "\\/" if found[0] == "/" else found[0]


def _in_parentheses(part: Expression, *kinds: type[AllOf] | type[AnyOf]) -> str:
    return f"({part})" if isinstance(part, kinds) else str(part)
