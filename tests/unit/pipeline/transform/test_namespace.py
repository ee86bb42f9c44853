"""The namespaces that a filter matches, invalid filters, and linear time."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import InvalidValue
from tailrace.pipeline.transform.namespace import ALL, NamespaceFilter

NAMES = ["User", "FooUser", "UserFoo", "Other"]


def matched(text: str | None, names: list[str] = NAMES) -> list[str]:
    found = NamespaceFilter.parse(text)
    keys = pa.array([name.encode() for name in names], pa.binary())
    mask = found.mask(keys)
    chosen = names if mask is None else [names[index] for index in np.flatnonzero(mask)]
    assert chosen == [name for name in names if found.matches(name)]
    return chosen


def test_a_plain_name_matches_itself_alone() -> None:
    assert matched("User") == ["User"]


def test_an_expression_is_searched() -> None:
    assert matched("/User/") == ["User", "FooUser", "UserFoo"]
    assert matched("/^User/") == ["User", "UserFoo"]


def test_without_a_filter_all_match() -> None:
    assert matched(None) == NAMES
    assert NamespaceFilter.parse(None) == ALL


def test_a_plain_name_is_no_expression() -> None:
    assert matched("a.c", ["abc", "a.c"]) == ["a.c"]


def test_letters_beyond_ascii_count_as_one() -> None:
    assert matched("/^.$/", ["ä", "ab", "a"]) == ["ä", "a"]


def test_a_record_without_a_key_has_an_empty_namespace() -> None:
    keys = pa.array([None, b"a"], pa.binary())
    mask = NamespaceFilter.parse("/^$/").mask(keys)
    assert mask is not None
    assert mask.tolist() == [True, False]


def test_every_expression_takes_linear_time() -> None:
    begun = time.thread_time()
    assert not NamespaceFilter.parse("/(a+)+$/").matches("a" * 10_000 + "!")
    assert time.thread_time() - begun < 0.5


@pytest.mark.parametrize("expression", [r"(a)\1", "a(?=b)", "(?<!a)b", "(", "a{5000}"])
def test_an_expression_that_re2_does_not_know_is_named(expression: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        NamespaceFilter.parse(f"/{expression}/")
    assert repr(expression) in str(caught.value)
    assert "no backreferences and no lookaround" in str(caught.value)


@pytest.mark.parametrize("text", ["", "/", "/User"])
def test_a_filter_that_is_neither_name_nor_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="a name such as"):
        NamespaceFilter.parse(text)


def test_a_filter_survives_writing() -> None:
    assert [str(NamespaceFilter.parse(text)) for text in ("a", "/a/", None)] == ["a", "/a/", "all"]


@given(st.lists(st.text(max_size=5), max_size=30), st.text(min_size=1, max_size=3))
def test_columns_match_as_single_namespaces_do(names: list[str], name: str) -> None:
    if not name.startswith("/"):
        matched(name, names)
    matched("/[a-m]/", names)
