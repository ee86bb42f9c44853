"""The chain between the commit log and a writer: a filter, then functions, in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.delivery.dead_letters.addressing import addressed_mask
from tailrace.log.control import control_mask
from tailrace.log.redelivered import replays_of, with_shown_headers
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import ALL, NamespaceFilter
from tailrace.pipeline.transform.rows import Rows
from tailrace.pipeline.transform.sql import Sql


@dataclass(frozen=True, slots=True)
class Chain:
    """The namespace filter of a writer and its functions. Immutable, and sent to executors.

    `namespace` is matched with the original namespace, before any function. Control records (mode
    Complete, op Command or Noop) pass the functions unchanged, and reach the writer only with
    `controls`. `writer` is the full name, ``lake/crm``: records that are addressed to another
    consumer are dropped, and the headers of the others do not show an address. With `columns`,
    functions work on columns if all of them can, which is several times faster; null and absent
    fields are then the same.
    """

    namespace: NamespaceFilter = ALL
    functions: tuple[Function, ...] = ()
    controls: bool = False
    writer: str = ""
    columns: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Return the rows for the writer, in order.

        `RowError` for the first that a function cannot transform. The given rows are not changed,
        even if a user's function changes its documents.
        """
        rows = self._selected(Rows(rows.encoded))
        if not self.functions or not len(rows):
            return rows
        controls = control_mask(rows.records) if self.controls else None
        if controls is None or not controls.any():
            return self._transformed(rows)
        return self._transformed(_where(rows, ~controls)).merged(_where(rows, controls))

    @property
    def needs_spark(self) -> bool:
        """True if only the Spark engine can run the chain."""
        return any(isinstance(function, Sql) for function in self.functions)

    def parts(self) -> list[Chain | Sql]:
        """Return the chain split at its `sql` functions, for Spark.

        The parts are chains to `apply`, and the functions between. The first part is always a
        chain, and only the first part drops records.
        """
        parts: list[Chain | Sql] = []
        chain = replace(self, functions=())
        for function in self.functions:
            if isinstance(function, Sql):
                parts += [chain, function] if chain.functions or not parts else [function]
                chain = Chain(controls=True)
            else:
                chain = replace(chain, functions=(*chain.functions, function))
        return [*parts, chain] if chain.functions or not parts else parts

    def _selected(self, rows: Rows) -> Rows:
        headers = rows.records["headers"]
        addressed = self._addressed(headers)
        masks = [
            self.namespace.mask(rows.records["key"]),
            addressed,
            None if self.controls else ~control_mask(rows.records),
        ]
        for mask in masks[1:]:
            if mask is not None:
                masks[0] = mask if masks[0] is None else masks[0] & mask
        selected = rows if masks[0] is None else _where(rows, masks[0])
        if addressed is None and replays_of(headers) is None:
            return selected
        return Rows(with_shown_headers(selected.encoded))

    def _addressed(self, headers: pa.Array[Any]) -> npt.NDArray[np.bool_] | None:
        return addressed_mask(headers, self.writer) if self.writer else None

    def _transformed(self, rows: Rows) -> Rows:
        if self.columns:
            transformed = self._by_columns(rows)
            if transformed is not None:
                return transformed
        for function in self.functions:
            if not len(rows):
                break
            mask = function.namespace.mask(rows.records["key"])
            if mask is None:
                rows = function.apply(rows)
            elif mask.any():
                rows = function.apply(_where(rows, mask)).merged(_where(rows, ~mask))
        return rows

    def _by_columns(self, rows: Rows) -> Rows | None:
        default = Function.apply_columns
        if any(f.namespace != ALL or type(f).apply_columns is default for f in self.functions):
            return None
        if any(field.metadata for field in rows.columns.schema):
            # A column has values of several types; after a function drops rows, it may have one.
            return None
        by_columns: Rows | None = rows
        for function in self.functions:
            if not by_columns:
                break
            by_columns = function.apply_columns(by_columns)
        return by_columns


def _where(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    return rows if mask.all() else rows.take(np.flatnonzero(mask))
