"""Refuse headers that only Tailrace may write: those whose names begin with ``tailrace.``.

They decide who may process a record, and describe dead letters. A user's message with such a header
would be hidden from the groups that it does not name.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import InvalidValue
from tailrace.reserved_names import INTERNAL_PREFIX


def check_header_name(name: str) -> None:
    """Raise `InvalidValue` for a reserved name."""
    if name.startswith(INTERNAL_PREFIX):
        raise InvalidValue(
            "header",
            name,
            f"any name that does not begin with {INTERNAL_PREFIX!r}",
            problem=f"the header name {name!r} is reserved for Tailrace",
        )


def check_header_names(headers: pa.Array[Any]) -> None:
    """Raise `InvalidValue` for the first reserved name in a column of headers.

    A column without headers costs nothing.
    """
    if headers.null_count == len(headers):
        return
    names: Any = headers
    # `keys` may have names of rows outside a slice, so only the rows themselves convict.
    if pc.any(pc.starts_with(names.keys, pattern=INTERNAL_PREFIX)).as_py():
        for pairs in headers.to_pylist():
            for name, _ in pairs or ():
                check_header_name(name)
