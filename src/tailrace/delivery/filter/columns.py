"""Filter expressions over the columns of a batch. The results are those of `holds`, row by row."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    utf8,
)
from tailrace.log.column_codec import row_lengths
from tailrace.regular_expression import search_column

Mask: TypeAlias = "npt.NDArray[np.bool_]"

_COMPARE: Final[dict[Comparator, Any]] = {
    Comparator.EQUAL: pc.equal,
    Comparator.NOT_EQUAL: pc.not_equal,
    Comparator.LESS: pc.less,
    Comparator.LESS_EQUAL: pc.less_equal,
    Comparator.GREATER: pc.greater,
    Comparator.GREATER_EQUAL: pc.greater_equal,
}


class _Present(NamedTuple):
    """The rows that have a field, and its value in each of them."""

    rows: npt.NDArray[np.int64]
    values: pa.Array[Any]


def mask_of(expression: Expression, records: pa.RecordBatch) -> Mask:
    """Return, for each record, True if an expression is true."""
    return _Evaluation(records).mask(expression)


class _Evaluation:
    """The evaluation of one expression. The values of a field are looked up once."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records
        self._present: dict[MessageField, _Present] = {}

    def mask(self, expression: Expression) -> Mask:
        match expression:
            case AllOf(parts):
                return reduce(np.logical_and, map(self.mask, parts))
            case AnyOf(parts):
                return reduce(np.logical_or, map(self.mask, parts))
            case Negated(part):
                return ~self.mask(part)
        rows, values = self._find(expression.field)
        mask = np.zeros(self._records.num_rows, np.bool_)
        if len(rows):
            mask[rows] = _tested(expression, values)
        return mask

    def _find(self, field: MessageField) -> _Present:
        found = self._present.get(field)
        if found is None:
            if field.header is None:
                found = _present_keys(self._records["key"])
            else:
                found = _present_headers(self._records["headers"], field.header)
            self._present[field] = found
        return found


def _present_keys(keys: pa.Array[Any]) -> _Present:
    rows = np.flatnonzero(row_lengths(keys))
    return _Present(rows, keys if len(rows) == len(keys) else keys.take(rows))


def _present_headers(headers: Any, name: str) -> _Present:
    """Arrow's own lookup in maps takes ten times as long."""
    offsets = headers.offsets.to_numpy()  # into columns that may have more than these rows
    start, end = int(offsets[0]), int(offsets[-1])
    equal = pc.equal(headers.keys.slice(start, end - start), pa.scalar(name))
    places = np.flatnonzero(equal.to_numpy(zero_copy_only=False)) + start
    rows = np.searchsorted(offsets, places, "right") - 1
    if headers.null_count:
        valid = headers.is_valid().to_numpy(zero_copy_only=False)[rows]
        rows, places = rows[valid], places[valid]
    return _Present(rows, headers.items.take(places))


def _tested(test: Test, values: pa.Array[Any]) -> Mask:
    match test:
        case Compared(_, comparator, value):
            found = _COMPARE[comparator](values, pa.scalar(value, pa.binary()))
        case OneOf(_, listed):
            found = pc.is_in(values, value_set=pa.array(listed, pa.binary()))
        case Matched(_, expression):
            found = search_column(expression, _texts(values))
        case Exists():
            return np.ones(len(values), np.bool_)
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _texts(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return values as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        found: list[Any] = values.to_pylist()
        return pa.array([utf8(value) for value in found], pa.string())
