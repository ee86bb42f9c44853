"""Filters are parsed as written, and errors name the place and what is valid there."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
)
from tailrace.delivery.filter.parser import DEPTH_MAX, parse_expression
from tailrace.delivery.filter.tokens import CHARACTERS_MAX
from tailrace.errors import InvalidValue
from tests.unit.delivery.filter.expressions import expressions

KEY = MessageField(None)
COUNTRY = MessageField("country")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("header.country == 'IN'", Compared(COUNTRY, Comparator.EQUAL, b"IN")),
        ('header["content-type"]!="a"',
         Compared(MessageField("content-type"), Comparator.NOT_EQUAL, b"a")),
        ("header.and exists", Exists(MessageField("and"))),
        (r"""key >= 'it\'s "x" \\ \n'""",
         Compared(KEY, Comparator.GREATER_EQUAL, b"it's \"x\" \\ \n")),
        ("key in ('a', 'b')", OneOf(KEY, (b"a", b"b"))),
        (r"key matches /^a\/\d+$/", Matched(KEY, r"^a/\d+$")),
        ("not not key exists", Negated(Negated(Exists(KEY)))),
    ],
)  # fmt: skip
def test_a_test_is_parsed(text: str, expected: Expression) -> None:
    assert parse_expression(text) == expected


def test_not_binds_closer_than_and_and_and_closer_than_or() -> None:
    key, country = Exists(KEY), Exists(COUNTRY)
    assert parse_expression("key exists or not key exists and header.country exists") == AnyOf(
        (key, AllOf((Negated(key), country)))
    )
    assert parse_expression("(key exists or key exists) and header.country exists") == AllOf(
        (AnyOf((key, key)), country)
    )


@given(expressions)
def test_the_text_of_an_expression_parses_to_the_same_expression(expression: Expression) -> None:
    assert parse_expression(str(expression)) == expression


SYMBOLS = ". [ ] == < ( ) , ' / \\ ="
WORDS = ["key", "header", "'a'", "/a/", "/(/", "in", "and", "or", "not", "exists", "matches", "1"]
words = st.lists(st.sampled_from([*WORDS, *SYMBOLS, "\ud800"]))


@given(st.one_of(st.text(), words.map("".join), words.map(" ".join)))
def test_any_text_is_parsed_or_an_invalid_value(text: str) -> None:
    with contextlib.suppress(InvalidValue):
        assert parse_expression(str(parse_expression(text)))


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("header.country == IN", "IN", "unexpected 'IN' · valid: a text in quotes, as 'IN'"),
        ("header.country = 'IN'", "=", "'=' is not an operator · valid: =="),
        ("header.country =~ 'IN'", "=~", "'=' is not an operator · valid: matches /EXPRESSION/"),
        ("header.size > 10", "10", "a number has no quotes · valid: values are text, as '10'"),
        ("header.content-type exists", "-type", "header['NAME'] for other names"),
        ("country == 'IN'", "country", "unexpected 'country' · valid: key, header.NAME"),
        ("headers.country exists", "headers", "unexpected 'headers', did you mean 'header'?"),
        ("key exists AND key exists", "AND", "unexpected 'AND', did you mean 'and'? · valid: and,"),
        ("key matches 'a'", "'a'", "unexpected a text in quotes · valid: a regular expression"),
        ("key matches /(?=a)/", "/(", "invalid perl operator: (?= · valid: a regular expression"),
        ("key == 'a", "'a", "the text has no end · valid: another ' after it"),
        ("key matches /a", "/a", "the regular expression has no end"),
        (r"key == 'a\d'", r"\d", r"\d is not an escape · valid: \\  \'  \"  \n  \r  \t"),
        ("key in 'a'", "'a'", "valid: a list of texts, as ('IN', 'US')"),
        ("key in ()", ")", "unexpected ')' · valid: a text in quotes"),
        ("(key exists", "", "unexpected the end · valid: and, or, or )"),
        ("key", "", "unexpected the end · valid: == != < <= > >= in matches exists"),
        ("key == 'a' == 'b'", "== 'b'", "unexpected '==' · valid: and, or, or the end"),
        ("header['tailrace.for'] exists", "'tail", "consumers do not see the header"),
        ("key == '\ud800'", "\ud800", "cannot be encoded"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_what_is_valid(text: str, at: str, message: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        parse_expression(text)
    first, shown, caret = str(raised.value).split("\n")
    place = text.index(at) if at else len(text)
    assert f"filter, character {place + 1}: " in first
    assert message in first
    assert first.endswith(" · here:")
    assert shown.strip() == text.replace("\ud800", " ")
    assert caret == " " * (4 + place) + "^"


def test_the_place_in_a_long_filter_is_shown_with_what_is_around_it() -> None:
    text = " or ".join(["key == 'a'"] * 50) + " or\tkey = 'b'"
    with pytest.raises(InvalidValue) as raised:
        parse_expression(text)
    _, shown, caret = str(raised.value).split("\n")
    assert shown[len(caret) - 1] == "="
    assert shown.endswith("or key = 'b'")
    assert len(shown) < 80


@pytest.mark.parametrize("text", [None, b"key exists", "", "  "])
def test_what_is_no_text_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(InvalidValue, match="valid: an expression such as"):
        parse_expression(text)


def test_the_length_and_the_depth_of_a_filter_are_bounded() -> None:
    parse_expression(f"key == '{'x' * (CHARACTERS_MAX - 9)}'")
    with pytest.raises(InvalidValue, match="4,097 characters · valid: up to 4,096"):
        parse_expression(f"key == '{'x' * (CHARACTERS_MAX - 8)}'")
    parse_expression("not " * (DEPTH_MAX - 1) + "key exists")
    for deep in ("not " * DEPTH_MAX, "(" * CHARACTERS_MAX):
        with pytest.raises(InvalidValue, match="the filter is too deep"):
            parse_expression((deep + "key exists")[:CHARACTERS_MAX])
