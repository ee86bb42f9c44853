"""`skip`: drop rows by the value of a field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final

import numpy as np

from tailrace.errors import InvalidValue
from tailrace.functions.column_comparison import dropped_by
from tailrace.functions.path import MISSING, check_path, value_at
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Rows
from tailrace.regular_expression import check_expression, search

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
OPERATORS: Final = ("==", "!=", *_ORDERS, "=~", "in", "exists")


class Skip(Function, frozen=True):
    """Drops the rows for which ``field operator value`` is true.

    Numbers are compared with numbers and text with text. Values of different types are not equal,
    and none is less or greater. A missing field counts as null.
    """

    field: str
    operator: str
    value: Any = None

    def apply(self, rows: Rows) -> Rows:
        """Return the rows for which the comparison is not true."""
        names = self.field.split(".")
        if len(names) == 1:
            values = [document.get(self.field, MISSING) for document in rows.documents]
        else:
            values = [value_at(document, names) for document in rows.documents]
        dropped = self._true(values)
        return rows.where([not each for each in dropped]) if any(dropped) else rows

    def apply_columns(self, rows: Rows) -> Rows | None:
        """Do the same on columns; None if only single values can be compared."""
        columns = rows.columns
        index = columns.schema.get_field_index(self.field)
        if "." in self.field or index < 0:
            return None
        dropped = dropped_by(columns.column(index), self.operator, self.value)
        if dropped is None:
            return None
        return rows.take(np.flatnonzero(~dropped)) if dropped.any() else rows

    def _true(self, values: list[Any]) -> list[bool]:
        if self.operator == "exists":
            return [(value is not MISSING) is self.value for value in values]
        if self.operator == "=~":
            return search(self.value, [each if isinstance(each, str) else None for each in values])
        if self.operator in _ORDERS:
            compare, kind = _ORDERS[self.operator], _kind(self.value)
            return [_kind(each) is kind and compare(each, self.value) for each in values]
        wanted = self.value if self.operator == "in" else (self.value,)
        keys = {_key(each) for each in wanted}
        equal = [_key(each) in keys for each in values]
        return [not each for each in equal] if self.operator == "!=" else equal


def _kind(value: Any) -> type:
    """Return the type that a value may be compared with; unlike in Python, true is no number."""
    return float if type(value) is int else type(value)


def _key(value: Any) -> tuple[type, Any]:
    """Return a key that is the same only for equal values; objects and lists equal nothing."""
    if value is MISSING:
        return type(None), None
    return (_kind(value), None if isinstance(value, dict | list) else value)


def skip(field: str, operator: str, value: Any = None, *, namespace: str | None = None) -> Skip:
    """Return a function that drops rows by a field: ``fn.skip("total", "<", 0)``.

    ``in`` takes a list: ``fn.skip("state", "in", ["draft"])``. ``=~`` searches an RE2 regular
    expression in text. ``exists`` takes true (the default) to drop rows that have the field, or
    false to drop rows that do not.
    """
    if operator not in OPERATORS:
        raise InvalidValue("operator", operator, "  ".join(OPERATORS))
    if operator == "exists" and value is None:
        value = True
    value = _checked(operator, value)
    return Skip(check_path(field), operator, value, namespace=NamespaceFilter.parse(namespace))


def _checked(operator: str, value: Any) -> Any:
    kind = _kind(value)
    if operator == "exists" and kind is not bool:
        raise InvalidValue("value", value, "true or false")
    if operator == "=~":
        return check_expression("value", value)
    if operator in _ORDERS and kind not in (float, str):
        raise InvalidValue("value", value, f"a number or text to compare by {operator}")
    if operator == "in":
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise InvalidValue("value", value, "a list of values")
        return tuple(_scalar(each) for each in value)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if _kind(value) not in (float, str, bool, type(None)):
        raise InvalidValue("value", value, "text, a number, true, false or null")
    return value
