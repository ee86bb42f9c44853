"""Functions on columns do the same as on documents, except that null fields are absent."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
from hypothesis import given as holds_for
from hypothesis import settings
from hypothesis import strategies as some

from tailrace import functions as fn
from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.columns import columns_of, documents_of, without_nulls
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.rows import Rows
from tests.support.counts import count
from tests.unit.pipeline.transform.test_json_columns import ALIKE, UNLIKE

NAMES = some.sampled_from(["id", "name", "at", "ö", "absent"])
CONSTANTS = some.sampled_from([0, 1, -0.0, 0.5, 2.0, 2**53, 2**53 + 1, "x", "", "2026-01-01", True])
NUMBERS = some.sampled_from([0, 1, -0.0, 0.5, 2.0, 2**53, 2**60 + 1, "x", "2026-01-01"])
FUNCTIONS = some.lists(
    some.one_of(
        some.lists(NAMES, min_size=1, max_size=2).map(lambda names: fn.omit(*names)),
        some.lists(NAMES, min_size=1, max_size=4).map(lambda names: fn.pick(*names)),
        some.dictionaries(NAMES, NAMES, min_size=1, max_size=2)
        .filter(lambda moves: len(set(moves.values())) == len(moves))
        .map(fn.rename),
        some.builds(fn.skip, NAMES, some.sampled_from(["==", "!="]), CONSTANTS | some.none()),
        some.builds(fn.skip, NAMES, some.sampled_from(["<", "<=", ">", ">="]), NUMBERS),
        some.builds(fn.skip, NAMES, some.just("in"), some.lists(CONSTANTS, min_size=1, max_size=3)),
        some.just(fn.opfilter(deny=["delete"])),
    ),
    min_size=1,
    max_size=3,
)


def rows_of(documents: list[dict[str, Any]]) -> Rows:
    values = map(msgspec.json.encode, documents)
    return Rows(
        from_records(
            [Record(n, 0, 1, n % 3, b"orders", None, value) for n, value in enumerate(values)]
        )
    )


def test_columns_become_documents_again() -> None:
    documents: list[dict[str, Any]] = [
        {"a": 1, "b": {"c": [{"d": "x"}]}, "e": 1},
        {"e": "x"},
        {"e": {"f": [1]}},
    ]
    assert documents_of(columns_of(documents)) == documents


def test_rows_with_columns_are_rows_with_documents() -> None:
    rows = rows_of([{"a": 1}, {"a": 2}, {"b": 3}])
    changed = rows.with_columns(rows.columns.rename_columns(["x", "b"]))
    assert changed.take([1, 2]).documents == [{"x": 2}, {"b": 3}]
    assert changed.encoded["value"].to_pylist() == [b'{"x":1}', b'{"x":2}', b'{"b":3}']
    assert rows.encoded["value"][0].as_py() == b'{"a":1}'


@settings(max_examples=count("column-chains", test=30, soak=1000))
@holds_for(ALIKE | UNLIKE, FUNCTIONS)
def test_a_chain_gives_the_same_on_columns(
    given: list[dict[str, Any]], functions: list[Function]
) -> None:
    by_columns = Chain(functions=tuple(functions), columns=True).apply(rows_of(given))
    expected = Chain(functions=tuple(functions)).apply(rows_of(given))
    assert by_columns.offsets == expected.offsets
    assert [without_nulls(each) for each in by_columns.documents] == [
        without_nulls(each) for each in expected.documents
    ]


def test_columns_are_used_where_every_function_can() -> None:
    rows = rows_of([{"id": n, "state": "new", "card": "x"} for n in range(100)])
    functions = (fn.skip("id", ">=", 10), fn.omit("card"), fn.rename({"state": "status"}))
    result = Chain(functions=functions, columns=True).apply(rows)
    assert result.columns.schema.names == ["id", "status"]
    assert result._documents is None
    mixed = Chain(functions=(*functions, fn.pretty()), columns=True).apply(rows)
    assert mixed._documents is not None


def test_a_chain_that_was_sent_to_an_executor_uses_columns() -> None:
    chain = Chain(functions=(fn.skip("id", ">=", 10), fn.omit("card")), columns=True)
    sent: Chain = pickle.loads(pickle.dumps(chain))
    result = sent.apply(rows_of([{"id": n, "card": "x"} for n in range(100)]))
    assert result.columns.schema.names == ["id"]
    assert result._documents is None
