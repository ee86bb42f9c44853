"""`opfilter`: select rows by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tailrace.errors import InvalidValue
from tailrace.message import Op
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Rows

_OPS: Final = {op.name.lower(): op for op in (Op.INSERT, Op.UPDATE, Op.DELETE)}


class Opfilter(Function, frozen=True):
    """Drops the rows whose operation is not in `allowed`."""

    allowed: tuple[Op, ...]

    def apply(self, rows: Rows) -> Rows:
        """Return the rows whose operation is allowed."""
        keep = np.isin(rows.records["op"].to_numpy(), self.allowed)
        return rows if keep.all() else rows.take(np.flatnonzero(keep).tolist())

    apply_columns = apply


def opfilter(
    *, allow: Sequence[str] = (), deny: Sequence[str] = (), namespace: str | None = None
) -> Opfilter:
    """Return a function that keeps only some operations: ``fn.opfilter(deny=["delete"])``.

    The operations are insert, update and delete. Give either the allowed or the denied ones.
    """
    if bool(allow) == bool(deny):
        raise InvalidValue("allow", list(allow), "either allow or deny, with operations")
    allowed = {_op("allow", name) for name in _listed("allow", allow)}
    denied = {_op("deny", name) for name in _listed("deny", deny)}
    chosen = allowed or set(_OPS.values()) - denied
    return Opfilter(tuple(sorted(chosen)), namespace=NamespaceFilter.parse(namespace))


def _listed(what: str, names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidValue(what, names, "a list of insert, update, delete")
    return names


def _op(what: str, name: str) -> Op:
    if name not in _OPS:
        raise InvalidValue(what, name, ", ".join(_OPS))
    return _OPS[name]
