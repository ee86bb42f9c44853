"""Each function: its effect on documents, and the arguments it refuses."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tailrace import functions as fn
from tailrace.errors import ConfigError, InvalidValue
from tailrace.message import Op
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.rows import RowError, Rows
from tests.support.rows import record, rows, rows_of, values

ORDER = {"id": 1, "card": "4111", "customer": {"name": "c7", "address": {"city": "Ulm"}}}


def result(function: Function, *documents: Any) -> list[Any]:
    """Apply a function to documents, and check that it does not change its input."""
    given = rows(*documents)
    before = copy.deepcopy(given.documents)
    made = values(function.apply(given))
    assert given.documents == before
    return made


def test_omit_leaves_out_fields_at_any_depth() -> None:
    function = fn.omit("card", "customer.address.city", "nothing", "id.nothing")
    assert result(function, ORDER, {}) == [
        {"id": 1, "customer": {"name": "c7", "address": {}}},
        {},
    ]


def test_pick_keeps_fields_at_any_depth_in_its_own_order() -> None:
    function = fn.pick("customer.address.city", "id", "nothing", "card.nothing")
    (picked,) = result(function, ORDER)
    assert list(picked.items()) == [("customer", {"address": {"city": "Ulm"}}), ("id", 1)]


def test_a_whole_field_is_not_narrowed_by_a_deeper_path() -> None:
    assert result(fn.pick("customer.name", "customer"), ORDER) == [{"customer": ORDER["customer"]}]
    assert result(fn.pick("customer", "customer.name"), ORDER) == [{"customer": ORDER["customer"]}]


def test_a_path_does_not_lead_into_lists() -> None:
    assert result(fn.omit("lines.price"), {"lines": [{"price": 1}]}) == [{"lines": [{"price": 1}]}]


@pytest.mark.parametrize(
    ("moves", "before", "after"),
    [
        ({"a": "b"}, {"a": 1, "c": 2}, {"b": 1, "c": 2}),
        ({"a": "b"}, {"a": 1, "b": 2}, {"b": 1}),
        ({"a": "b", "b": "a"}, {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"nothing": "b"}, {"a": 1}, {"a": 1}),
        ({"a.b": "c"}, {"a": {"b": 1, "d": 2}}, {"a": {"d": 2}, "c": 1}),
        ({"a": "b.c.d"}, {"a": 1, "b": {"e": 2}}, {"b": {"e": 2, "c": {"d": 1}}}),
        ({"a.b": "a.c"}, {"a": {"b": 1}}, {"a": {"c": 1}}),
        ({"a": "a.b"}, {"a": 1}, {"a": {"b": 1}}),
        ({"a": "b"}, {"a": None}, {"b": None}),
    ],
)
def test_rename_moves_fields(
    moves: dict[str, str], before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert result(fn.rename(moves), before) == [after]


def test_rename_names_the_record_whose_parent_is_not_an_object() -> None:
    with pytest.raises(
        RowError, match=r"offset 1: rename: a cannot move to b\.c: not in an object"
    ) as caught:
        fn.rename({"a": "b.c"}).apply(rows({"a": 1}, {"a": 1, "b": 2}))
    assert caught.value.offset == 1


def test_remap_renames_namespaces_by_the_first_rule_that_matches() -> None:
    function = fn.remap({"public.orders": "sales", r"/^public[.](.*)$/": r"copy.\1"})
    names = ["public.orders", "public.users", "other"]
    given = rows_of(*(record(i, {"n": i}, name) for i, name in enumerate(names)))
    remapped = function.apply(given)
    assert remapped.namespaces == ["sales", "copy.users", "other"]
    assert values(remapped) == values(given)


SKIPPED: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("==", 1, [1, 1.0], [True, "1", None, 2, [1], {}]),
    ("==", None, [None], [0, "", False, [], {}]),
    ("!=", "a", ["b", None, 1, [], {}], ["a"]),
    ("!=", True, [1, False], [True]),
    ("<", 5, [4, 4.9], [5, 6, "4", None, True, []]),
    ("<=", 5, [5, 4], [6]),
    (">", "b", ["c"], ["a", "b", 9, None]),
    (">=", 0.5, [0.5, 1], [0, "1"]),
    ("=~", "^a+b", ["ab", "aab!"], ["b", 1, None, ["ab"]]),
    ("in", ["a", 1, None], ["a", 1.0, None], ["b", True, [], {}]),
    ("exists", True, [1, None, []], []),
    ("exists", False, [], [1, None]),
]


@pytest.mark.parametrize(("operator", "value", "dropped", "kept"), SKIPPED)
def test_skip_drops_documents_that_match_the_comparison(
    operator: str, value: Any, dropped: list[Any], kept: list[Any]
) -> None:
    for field in ("f", "deep.f"):
        documents = [{"f": each} if field == "f" else {"deep": {"f": each}} for each in dropped]
        stays = [{"f": each} if field == "f" else {"deep": {"f": each}} for each in kept]
        assert result(fn.skip(field, operator, value), *documents, *stays) == stays


@pytest.mark.parametrize(
    ("operator", "value", "dropped"),
    [
        ("==", 1, False),
        ("==", None, True),
        ("!=", 1, True),
        ("<", 1, False),
        ("=~", "", False),
        ("in", [None], True),
        ("exists", None, False),
        ("exists", False, True),
    ],
)
def test_a_missing_field_is_treated_as_null(operator: str, value: Any, dropped: bool) -> None:
    assert result(fn.skip("f", operator, value), {}) == ([] if dropped else [{}])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fn.skip("a", "~", 1), "operator is '~' · valid: ==  !=  <"),
        (lambda: fn.skip("a", "<", True), "a number or text"),
        (lambda: fn.skip("a", "<"), "a number or text"),
        (lambda: fn.skip("a", "in", "abc"), "a list"),
        (lambda: fn.skip("a", "in", [[]]), "text, a number"),
        (lambda: fn.skip("a", "==", {}), "text, a number"),
        (lambda: fn.skip("a", "=~", "("), "missing )"),
        (lambda: fn.skip("a", "exists", 1), "true or false"),
        (lambda: fn.skip("a..b", "==", 1), "a field such as"),
        (fn.omit, "one field or more"),
        (lambda: fn.pick(""), "a field such as"),
        (lambda: fn.rename({}), "old and new names"),
        (lambda: fn.rename({"a": "c", "b": "c"}), "each new name once"),
        (lambda: fn.remap({"/(a)/": r"\2"}), "only has 1 parenthesized"),
        (lambda: fn.remap({"/(/": "b"}), "missing )"),
        (lambda: fn.remap({"a": ""}), "a namespace"),
        (fn.opfilter, "either allow or deny"),
        (lambda: fn.opfilter(allow=["insert"], deny=["delete"]), "either allow or deny"),
        (lambda: fn.opfilter(deny=["command"]), "insert, update, delete"),
        (lambda: fn.opfilter(deny="delete"), "a list of"),
        (lambda: fn.pretty(indent=-1), "0 to 8"),
        (lambda: fn.sql(schema=""), "Spark SQL"),
        (lambda: fn.sql("a", " ", schema="a INT"), "Spark SQL"),
        (lambda: fn.python("nowhere"), "module:name"),
        (lambda: fn.omit("a", namespace="/(/"), "missing )"),
    ],
)
def test_invalid_arguments_are_refused_when_a_function_is_defined(
    make: Callable[[], Function], said: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("function", "ops"),
    [
        (fn.opfilter(allow=["insert", "delete"]), [Op.INSERT, Op.DELETE]),
        (fn.opfilter(deny=["delete"]), [Op.INSERT, Op.UPDATE]),
    ],
)
def test_opfilter_passes_the_allowed_operations(function: Function, ops: list[Op]) -> None:
    given = rows_of(*(record(op, {}, op=op) for op in (Op.INSERT, Op.UPDATE, Op.DELETE)))
    assert function.apply(given).ops == ops


def test_pretty_logs_each_document_and_passes_all_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tailrace"):
        assert result(fn.pretty(), {"a": 1}, {"b": 2}) == [{"a": 1}, {"b": 2}]
    assert [each.getMessage() for each in caplog.records] == [
        'orders@0 insert {\n  "a": 1\n}',
        'orders@1 insert {\n  "b": 2\n}',
    ]


def test_pretty_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tailrace"):
        result(fn.pretty(indent=0), {"a": [1, 2]})
    assert caplog.messages == ['orders@0 insert {"a": [1, 2]}']


def test_sql_is_for_spark_alone() -> None:
    function = fn.sql("id, total * 2 AS twice", "total > 0", schema="id BIGINT, total DOUBLE")
    with pytest.raises(ConfigError, match='engine = "spark"'):
        function.apply(rows({"id": 1}))


def split(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**document, "line": line} for line in document.pop("lines")]


def test_python_may_change_drop_and_multiply_documents() -> None:
    made = fn.python(split).apply(rows({"lines": [1, 2]}, {"lines": []}, {"id": 7, "lines": [3]}))
    assert values(made) == [{"line": 1}, {"line": 2}, {"id": 7, "line": 3}]
    assert made.offsets == [0, 0, 2]


def test_python_drops_none_and_keeps_an_object() -> None:
    function = fn.python(lambda order: order if order["id"] > 1 else None)
    assert result(function, {"id": 1}, {"id": 2}) == [{"id": 2}]


def test_python_is_found_by_module_and_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_clean.py").write_text("def twice(d): return [d, d]\n")
    monkeypatch.setattr("sys.path", __import__("sys").path[:])
    function = fn.python("acme_clean:twice", directory=str(tmp_path))
    assert result(function, {"a": 1}) == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acme_no_such:f", "acme_no_such cannot be imported: ModuleNotFoundError"),
        ("json:nothing", "json has no function nothing"),
        ("json:__name__", "json has no function __name__"),
    ],
)
def test_an_unknown_python_function_is_refused_when_it_is_defined(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fn.python(text)


def fails(document: dict[str, Any]) -> dict[str, Any]:
    return {"x": 1 / document["n"]}


def test_an_exception_of_a_python_function_names_record_and_reason() -> None:
    with pytest.raises(RowError, match="offset 1: fails: ZeroDivisionError: division") as caught:
        fn.python(fails).apply(rows({"n": 1}, {"n": 0}))
    assert caught.value.offset == 1


@pytest.mark.parametrize("returned", [1, "text", [1], [{}, None], object()])
def test_a_result_that_is_no_document_names_the_record(returned: Any) -> None:
    with pytest.raises(RowError, match=r"offset 0: .*valid: an object"):
        fn.python(lambda _document: returned).apply(rows({}))


def test_a_result_that_json_cannot_hold_names_the_record() -> None:
    with pytest.raises(RowError, match=r"offset 0: .*TypeError"):
        fn.python(lambda _document: {"x": object()}).apply(rows({}))


def test_results_of_python_are_converted_to_json_types() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    function = fn.python(lambda _: {"at": moment, "sum": Decimal("1.10"), "of": (1, 2)})
    made = function.apply(rows({}))
    assert made.documents == [{"at": "2026-01-02T00:00:00Z", "sum": "1.10", "of": [1, 2]}]


@pytest.mark.parametrize(
    "function",
    [
        fn.omit("a", namespace="/x/"),
        fn.pick("a.b"),
        fn.rename({"a": "b"}),
        fn.remap({"/a/": "b"}),
        fn.skip("a", "in", [1]),
        fn.opfilter(deny=["delete"]),
        fn.pretty(),
        fn.python(split),
        fn.sql(schema="a INT"),
    ],
    ids=lambda function: type(function).__name__,
)
def test_every_function_can_be_sent_to_another_process(function: Function) -> None:
    assert pickle.loads(pickle.dumps(Chain(functions=(function,)))).functions == (function,)


def test_a_value_that_is_no_object_names_the_record() -> None:
    with pytest.raises(RowError, match="offset 1: its value is not a JSON object"):
        fn.omit("a").apply(rows({}, b"[1]"))


def test_documents_are_not_decoded_where_no_function_needs_them() -> None:
    given = rows(b"no JSON")
    remapped: Rows = fn.remap({"orders": "sales"}).apply(given)
    assert remapped.encoded["value"].to_pylist() == [b"no JSON"]
