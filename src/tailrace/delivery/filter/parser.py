"""The grammar of filters.

::

    expression  = conjunction ("or" conjunction)*
    conjunction = negation ("and" negation)*
    negation    = "not" negation | "(" expression ")" | test
    test        = field ("==" | "!=" | "<" | "<=" | ">" | ">=") text
                | field "in" "(" text ("," text)* ")"
                | field "matches" "/" regular expression "/"
                | field "exists"
    field       = "key" | "header" "." name | "header" "[" text "]"
"""

from __future__ import annotations

from typing import Final

from tailrace.delivery.filter.expression import (
    AllOf,
    AnyOf,
    Comparator,
    Compared,
    Exists,
    Expression,
    Matched,
    MessageField,
    Negated,
    OneOf,
    Test,
)
from tailrace.delivery.filter.tokens import CHARACTERS_MAX, Token, TokenKind, refused, tokens_of
from tailrace.errors import InvalidValue
from tailrace.log.redelivered import shown_headers
from tailrace.regular_expression import check_expression
from tailrace.suggestion import did_you_mean

DEPTH_MAX: Final = 32
"""The most parentheses and negations inside each other."""

FORM: Final = "an expression such as header.country == 'IN' and key exists"
_COMPARATORS: Final = {each.value: each for each in Comparator}
_OPERATORS: Final = (*_COMPARATORS, "in", "matches", "exists")
_FIELDS: Final = "key, header.NAME or header['NAME']"
_TEXT: Final = "a text in quotes, as 'IN'"


def parse_expression(text: object) -> Expression:
    """Parse a filter. `InvalidValue` names the place of an error and what is valid there."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue("filter", text, FORM)
    if len(text) > CHARACTERS_MAX:
        valid = f"up to {CHARACTERS_MAX:,} characters"
        raise InvalidValue("filter", text, valid, problem=f"a filter has {len(text):,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"{text[error.start]!r} cannot be encoded"
        raise refused(text, error.start, problem, "text that can be encoded as UTF-8") from None
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = iter(tokens_of(text))
        self._next = next(self._tokens)
        self._depth = 0

    def parse(self) -> Expression:
        found = self._expression()
        if self._next.kind is not TokenKind.END:
            raise self._unexpected("and, or, or the end", "and", "or")
        return found

    def _expression(self) -> Expression:
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _negation(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            valid = f"at most {DEPTH_MAX} parentheses and negations inside each other"
            raise refused(self._text, self._next.start, "the filter is too deep", valid)
        found: Expression
        if self._take("not"):
            found = Negated(self._negation())
        elif self._take("("):
            found = self._expression()
            self._expect(")", "and, or, or )")
        else:
            found = self._test()
        self._depth -= 1
        return found

    def _test(self) -> Test:
        field = self._field()
        token = self._next
        if token.kind in (TokenKind.NAME, TokenKind.SYMBOL) and token.text in _OPERATORS:
            self._advance()
        else:
            raise self._unexpected(" ".join(_OPERATORS), *_OPERATORS)
        if token.text == "exists":
            return Exists(field)
        if token.text == "in":
            return OneOf(field, self._list())
        if token.text == "matches":
            return Matched(field, self._regular_expression())
        return Compared(field, _COMPARATORS[token.text], self._value(_TEXT))

    def _field(self) -> MessageField:
        if self._take("key"):
            return MessageField(None)
        if not self._take("header"):
            raise self._unexpected(f"{_FIELDS}, not, or (", "key", "header", "not")
        if self._take("["):
            at = self._next.start
            name = self._value("the name of a header in quotes").decode()
            self._expect("]", "]")
        else:
            self._expect(".", _FIELDS)
            at = self._next.start
            if self._next.kind is not TokenKind.NAME:
                raise self._unexpected("the name of a header; header['content-type'] for others")
            name = self._advance().text
        if not shown_headers({name: b""}):
            raise refused(self._text, at, f"consumers do not see the header {name!r}", "another")
        return MessageField(name)

    def _list(self) -> tuple[bytes, ...]:
        self._expect("(", "a list of texts, as ('IN', 'US')")
        values = [self._value(_TEXT)]
        while self._take(","):
            values.append(self._value(_TEXT))
        self._expect(")", ", or )")
        return tuple(values)

    def _regular_expression(self) -> str:
        token = self._next
        if token.kind is not TokenKind.EXPRESSION:
            raise self._unexpected("a regular expression between slashes, as /^eu-/")
        try:
            check_expression("filter", token.text)
        except InvalidValue as error:
            raise refused(
                self._text, token.start, error.remedy or "not a regular expression", error.valid
            ) from None
        return self._advance().text

    def _value(self, valid: str) -> bytes:
        if self._next.kind is not TokenKind.TEXT:
            raise self._unexpected(valid)
        return self._advance().text.encode()

    def _take(self, word: str) -> bool:
        """True if the next token is a word or a symbol, which is passed then."""
        token = self._next
        found = token.kind in (TokenKind.NAME, TokenKind.SYMBOL) and token.text == word
        if found:
            self._advance()
        return found

    def _expect(self, word: str, valid: str) -> None:
        if not self._take(word):
            raise self._unexpected(valid)

    def _advance(self) -> Token:
        token, self._next = self._next, next(self._tokens, self._next)
        return token

    def _unexpected(self, valid: str, *words: str) -> InvalidValue:
        token = self._next
        near = did_you_mean(token.text, words) if token.kind is TokenKind.NAME else ""
        problem = f"unexpected {token.shown}" + (f", {near}" if near else "")
        return refused(self._text, token.start, problem, valid)
