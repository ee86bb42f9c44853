"""The words and symbols of a filter's text."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from tailrace.delivery.filter.expression import ESCAPES
from tailrace.errors import InvalidValue

CHARACTERS_MAX: Final = 4096
"""The most characters of a filter."""

_SHOWN_MAX: Final = 72
_TOKEN: Final = re.compile(
    r"""
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<expression>/(?:[^/\\]|\\.)*/)
    |(?P<symbol>[=!<>]=|[<>()\[\].,])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = re.compile(r"\s*")
_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)
_FOREIGN: Final = {
    "=~": "matches /EXPRESSION/",
    "=": "==",
    "&": "and",
    "|": "or",
    "!": "not",
    "~": "matches /EXPRESSION/",
    "<>": "!=",
}
"""Operators of other languages, and what a filter has instead."""


class TokenKind(Enum):
    """The kind of a token."""

    NAME = "name"
    TEXT = "text"
    EXPRESSION = "expression"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """A part of a filter's text. `start` is the index of its first character.

    `text` is as written, except that texts and expressions have no quotes and escapes.
    """

    kind: TokenKind
    text: str
    start: int

    @property
    def shown(self) -> str:
        """The token in an error message."""
        match self.kind:
            case TokenKind.END:
                return "the end"
            case TokenKind.TEXT:
                return "a text in quotes"
            case TokenKind.EXPRESSION:
                return "a regular expression"
        return repr(self.text)


def refused(text: str, at: int, problem: str, valid: str) -> InvalidValue:
    """Return the error for a filter that is wrong at a character, with a drawing of the place."""
    start = max(0, at - _SHOWN_MAX // 2)
    part = text[start : start + _SHOWN_MAX]
    drawn = "".join(each if each.isprintable() else " " for each in part)
    return InvalidValue(
        "filter",
        text,
        valid,
        f"here:\n    {drawn}\n    {'':>{at - start}}^",
        problem=f"filter, character {at + 1}: {problem}",
    )


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a filter, and an `END`. `InvalidValue` names the place of anything
    else."""
    found = []
    at = _end_of(_SPACE, text, 0)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or text.startswith("<>", at):
            raise _foreign(text, at)
        kind = TokenKind(match.lastgroup)
        found.append(Token(kind, _unescaped(text, kind, match), at))
        at = _end_of(_SPACE, text, match.end())
    found.append(Token(TokenKind.END, "", len(text)))
    return found


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()


def _unescaped(text: str, kind: TokenKind, match: re.Match[str]) -> str:
    if kind is TokenKind.EXPRESSION:
        return _BACKSLASH.sub(lambda each: "/" if each[1] == "/" else each[0], match[0][1:-1])
    if kind is not TokenKind.TEXT:
        return match[0]

    def character(each: re.Match[str]) -> str:
        if each[1] not in ESCAPES:
            valid = "  ".join(f"\\{letter}" for letter in ESCAPES)
            problem = f"\\{each[1]} is not an escape"
            raise refused(text, match.start() + 1 + each.start(), problem, valid)
        return ESCAPES[each[1]]

    return _BACKSLASH.sub(character, match[0][1:-1])


def _foreign(text: str, at: int) -> InvalidValue:
    first = text[at]
    if first in "'\"/":
        what = "regular expression" if first == "/" else "text"
        return refused(text, at, f"the {what} has no end", f"another {first} after it")
    if text[at:].lstrip("+-")[:1].isdigit():
        return refused(text, at, "a number has no quotes", "values are text, as '10'")
    instead = _FOREIGN.get(text[at : at + 2]) or _FOREIGN.get(first)
    if instead is not None:
        return refused(text, at, f"{first!r} is not an operator", instead)
    valid = "key, header.NAME, header['NAME'] for other names, operators, and texts in quotes"
    return refused(text, at, f"unexpected {first!r}", valid)
