"""The rows of a batch that a chain passes to a writer, and their order."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import functions as fn
from tailrace.errors import ConfigError
from tailrace.log.redelivered import FOR
from tailrace.message import Mode, Op
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.namespace import ALL, NamespaceFilter
from tailrace.pipeline.transform.rows import RowError, Rows
from tests.support.rows import record, rows, rows_of, values

USERS = NamespaceFilter.parse("users")


def mixed() -> Rows:
    """Orders at even offsets, users at odd ones."""
    names = ["orders", "users"] * 3
    return rows_of(*(record(i, {"n": i, "card": "x"}, name) for i, name in enumerate(names)))


def test_only_matching_namespaces_reach_the_writer() -> None:
    assert Chain(USERS).apply(mixed()).offsets == [1, 3, 5]
    assert Chain().apply(mixed()).offsets == [0, 1, 2, 3, 4, 5]


def test_the_filter_is_for_the_original_namespace_and_functions_for_the_current_one() -> None:
    chain = Chain(
        USERS,
        (
            fn.remap({"users": "people"}),
            fn.omit("n", namespace="people"),
            fn.omit("card", namespace="users"),
        ),
    )
    made = chain.apply(mixed())
    assert set(made.namespaces) == {"people"}
    assert values(made) == [{"card": "x"}] * 3


def test_rows_of_other_namespaces_pass_a_function_unchanged_in_order() -> None:
    made = Chain(functions=(fn.omit("card", namespace="users"),)).apply(mixed())
    assert made.offsets == [0, 1, 2, 3, 4, 5]
    assert values(made) == [{"n": i, "card": "x"} if i % 2 == 0 else {"n": i} for i in range(6)]


def twice(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [] if document["n"] == 3 else [document, document]


def test_rows_that_become_several_or_none_keep_their_order_among_others() -> None:
    made = Chain(functions=(fn.python(twice, namespace="users"),)).apply(mixed())
    assert made.offsets == [0, 1, 1, 2, 4, 5, 5]
    assert [each["n"] for each in values(made)] == [0, 1, 1, 2, 4, 5, 5]


CONTROLS = [
    record(1, {"rows": 1}, mode=Mode.COMPLETE, op=Op.NOOP),
    record(2, b"", op=Op.COMMAND),
    record(3, b"no JSON", op=Op.NOOP),
]


def with_controls() -> Rows:
    first, last = record(0, {"n": 0, "card": 1}), record(4, {"n": 4, "card": 1}, op=Op.DELETE)
    return rows_of(first, *CONTROLS, last)


def test_rows_of_other_namespaces_stay_the_same_to_the_byte() -> None:
    given = rows_of(record(0, {"a": 1}, "users"), record(1, b'{ "a" : 1.50 }'))
    made = Chain(functions=(fn.omit("a", namespace="users"),)).apply(given)
    assert made.encoded["value"].to_pylist() == [b"{}", b'{ "a" : 1.50 }']


@pytest.mark.parametrize("functions", [(), (fn.omit("card"),)])
def test_control_records_do_not_reach_writers(functions: Any) -> None:
    assert Chain(functions=functions).apply(with_controls()).offsets == [0, 4]


def test_control_records_reach_writers_that_want_them_untouched() -> None:
    functions = (fn.skip("n", "==", 4), fn.remap({"orders": "sales"}))
    made = Chain(functions=functions, controls=True).apply(with_controls())
    assert made.offsets == [0, 1, 2, 3]
    assert made.namespaces == ["sales", "orders", "orders", "orders"]
    assert made.encoded["value"].to_pylist()[2:] == [b"", b"no JSON"]


def test_documents_beside_control_records_without_json_are_changed_alone() -> None:
    changed = Chain(functions=(fn.omit("card"),), controls=True).apply(with_controls())
    assert changed.encoded["value"].to_pylist() == [
        b'{"n":0}', b'{"rows": 1}', b"", b"no JSON", b'{"n":4}',
    ]  # fmt: skip


def test_records_for_another_writer_are_dropped() -> None:
    headers = [None, {FOR: b"lake/crm"}, {FOR: b"lake/files"}, {"a": b"b"}]
    given = rows_of(*(record(i, {}, headers=each) for i, each in enumerate(headers)))
    assert Chain(writer="lake/crm").apply(given).offsets == [0, 1, 3]
    assert Chain(writer="lake/files").apply(given).offsets == [0, 2, 3]


def test_a_writer_does_not_see_that_a_record_was_redelivered_to_it_alone() -> None:
    headers = [{FOR: b"lake/crm", "source": b"web"}, {FOR: b"lake/crm"}, {"a": b"b"}]
    given = rows_of(*(record(i, {"n": i}, headers=each) for i, each in enumerate(headers)))
    chain = Chain(functions=(fn.omit("card"),), writer="lake/crm")
    made = chain.apply(given)
    assert made.encoded["headers"].to_pylist() == [[("source", b"web")], None, [("a", b"b")]]
    assert values(made) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_chain_leaves_the_rows_it_was_given_as_they_were() -> None:
    def spoil(document: dict[str, Any]) -> dict[str, Any]:
        document["deep"]["n"] = 99
        return document

    given = rows({"deep": {"n": 1}})
    chain = Chain(functions=(fn.python(spoil),))
    assert values(chain.apply(given)) == [{"deep": {"n": 99}}]
    assert given.documents == [{"deep": {"n": 1}}]


def test_a_function_never_sees_what_an_earlier_one_did_to_another_row() -> None:
    shared: dict[str, Any] = {"list": [0]}

    def grow(document: dict[str, Any]) -> dict[str, Any]:
        document["list"].append(1)
        return document

    chain = Chain(functions=(fn.python(lambda _: [shared, shared]), fn.python(grow)))
    assert values(chain.apply(rows({}))) == [{"list": [0, 1]}, {"list": [0, 1]}]


def test_an_error_names_the_offset_in_the_log() -> None:
    given = rows_of(*(record(40 + i, {"n": i}) for i in range(3)))
    chain = Chain(functions=(fn.skip("n", "==", 0), fn.python(lambda d: {"x": 1 / (d["n"] - 2)})))
    with pytest.raises(RowError) as caught:
        chain.apply(given)
    assert caught.value.offset == 42


def test_a_chain_may_drop_a_whole_batch() -> None:
    chain = Chain(NamespaceFilter.parse("none"), (fn.omit("a"),))
    assert len(chain.apply(mixed())) == 0
    assert len(chain.apply(mixed().take([]))) == 0


SQL = fn.sql(schema="n INT")
OMIT, PICK = fn.omit("a"), fn.pick("b")


@pytest.mark.parametrize(
    ("functions", "parts"),
    [
        ((), [()]),
        ((OMIT, PICK), [(OMIT, PICK)]),
        ((SQL,), [(), SQL]),
        ((OMIT, SQL, SQL, PICK), [(OMIT,), SQL, SQL, (PICK,)]),
    ],
)
def test_a_chain_is_cut_at_sql(functions: Any, parts: list[Any]) -> None:
    chain = Chain(USERS, functions, writer="lake/crm")
    cut = chain.parts()
    assert [each.functions if isinstance(each, Chain) else each for each in cut] == parts
    assert cut[0] == Chain(USERS, parts[0], writer="lake/crm")
    later = [each for each in cut[1:] if isinstance(each, Chain)]
    assert all((each.namespace, each.writer, each.controls) == (ALL, "", True) for each in later)
    assert chain.needs_spark is (SQL in functions)


def test_sql_is_refused_where_there_is_no_spark() -> None:
    with pytest.raises(ConfigError, match="needs Spark"):
        Chain(functions=(SQL,)).apply(mixed())


def test_a_chain_can_be_sent_to_another_process() -> None:
    chain = Chain(USERS, (OMIT, fn.python(twice)), controls=True, writer="lake/crm")
    assert pickle.loads(pickle.dumps(chain)) == chain


@given(st.data())
def test_a_chain_does_to_a_batch_what_it_does_to_each_record(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12))
    given = rows_of(*(record(i, {"n": i}, name) for i, name in enumerate(names)))
    chain = Chain(
        NamespaceFilter.parse("/[ab]/"),
        (
            fn.python(twice, namespace="a"),
            fn.remap({"b": "c"}),
            fn.rename({"n": "m"}, namespace="c"),
            fn.skip("m", ">", 6),
        ),
    )
    whole = chain.apply(given)
    single = [chain.apply(given.take([index])) for index in range(len(given))]
    assert whole.offsets == [offset for each in single for offset in each.offsets]
    assert values(whole) == [value for each in single for value in values(each)]
    assert whole.namespaces == [name for each in single for name in each.namespaces]
