"""Comparing a whole column with a value, as `skip` compares single values."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_MAX: Final = 1 << 53
_ORDERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def dropped_by(column: pa.Array[Any], operator: str, value: Any) -> npt.NDArray[np.bool_] | None:
    """Return, for each row, True if ``field operator value`` is true.

    None if single values must be compared. Only a column and a value of the same type are compared,
    exactly.
    """
    values = value if operator == "in" else (value,)
    comparable = [_comparable(column.type, each) for each in values]
    if None in comparable:
        return None
    if operator in _ORDERS:
        true = _ORDERS[operator](column, comparable[0])
    elif operator in ("==", "!=", "in"):
        true = reduce(pc.or_, [pc.equal(column, each) for each in comparable])
    else:
        return None
    mask: npt.NDArray[np.bool_] = pc.fill_null(true, False).to_numpy(zero_copy_only=False)
    return ~mask if operator == "!=" else mask


def _comparable(kind: pa.DataType, value: Any) -> Any:
    """Return a value as one of the column's type; None if that is not certain."""
    if isinstance(value, bool):
        return value if pa.types.is_boolean(kind) else None
    if isinstance(value, str):
        return value if pa.types.is_string(kind) else None
    if isinstance(value, int | float) and abs(value) < _EXACT_MAX:
        if pa.types.is_float64(kind):
            return float(value)
        if pa.types.is_int64(kind) and int(value) == value:
            return int(value)
    return None
