"""Filter expressions and messages that hypothesis makes up."""

from __future__ import annotations

from typing import Any

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

NAMES = ["country", "content-type", "ä", "it's", "and", ""]
VALUES = ["", "IN", "US", "I", "é", "10", "9", "a'b\"c\\d\n", "日本"]
PATTERNS = ["^I", "N$", "^.$", "[éä]", "a.b|1", r"\d+", "x/y", r"\\/", ""]

fields = st.builds(MessageField, st.sampled_from([None, *NAMES]))
values = st.one_of(st.sampled_from(VALUES), st.text(max_size=5)).map(
    lambda text: text.encode("utf-8", "replace")
)
tests: st.SearchStrategy[Any] = st.one_of(
    st.builds(Compared, fields, st.sampled_from(Comparator), values),
    st.builds(OneOf, fields, st.lists(values, min_size=1, max_size=4).map(tuple)),
    st.builds(Matched, fields, st.sampled_from(PATTERNS)),
    st.builds(Exists, fields),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(Negated, inner),
        st.builds(AllOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)

stored = st.one_of(values, st.just(b"\xff"), st.binary(max_size=4))
headers = st.one_of(
    st.none(), st.dictionaries(st.sampled_from([*NAMES, "tailrace.for"]), stored, max_size=4)
)
messages = st.tuples(st.one_of(st.none(), stored), headers)
