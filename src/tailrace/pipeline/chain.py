"""What happens to records on their way to one writer: filter, then functions, in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.message import Mode, Op
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import ALL, NamespaceFilter
from tailrace.pipeline.rows import Rows
from tailrace.pipeline.sql import Sql
from tailrace.source.headers import FOR


@dataclass(frozen=True, slots=True)
class Chain:
    """The namespace filter of a writer and its functions. Immutable, and carried to executors.

    `namespace` is matched with the original namespace, before any function. Control records (mode
    Complete, op Command or Noop) pass the functions untouched, and reach the writer only with
    `controls`. `writer` is its full name, ``lake/crm``: records whose header `FOR` names
    another one are dropped. With `columns`, functions work on columns where all of them can, which
    is several times faster; null and absent fields are then the same.
    """

    namespace: NamespaceFilter = ALL
    functions: tuple[Function, ...] = ()
    controls: bool = False
    writer: str = ""
    columns: bool = False

    def apply(self, rows: Rows) -> Rows:
        """The rows for the writer, in order. `RowError` for the first that cannot be handled.

        The rows given stay as they are, whatever a user's function does to its documents.
        """
        rows = self._selected(Rows(rows.encoded))
        if not self.functions or not len(rows):
            return rows
        controls = control_mask(rows.records) if self.controls else None
        if controls is None or not controls.any():
            return self._transformed(rows)
        return self._transformed(_taken(rows, ~controls)).merged(_taken(rows, controls))

    @property
    def needs_spark(self) -> bool:
        """Whether only the Spark engine can run it."""
        return any(isinstance(function, Sql) for function in self.functions)

    def parts(self) -> list[Chain | Sql]:
        """The chain cut at its `sql` functions, for Spark: chains to `apply`, and what is between.

        The first part is always a chain, and alone drops records.
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
        masks = [
            self.namespace.mask(rows.records["key"]),
            self._mine(rows.records["headers"]),
            None if self.controls else ~control_mask(rows.records),
        ]
        for mask in masks[1:]:
            if mask is not None:
                masks[0] = mask if masks[0] is None else masks[0] & mask
        return rows if masks[0] is None else _taken(rows, masks[0])

    def _mine(self, headers: pa.Array[Any]) -> npt.NDArray[np.bool_] | None:
        if not self.writer or headers.null_count == len(headers):
            return None
        named = pc.map_lookup(headers, query_key=pa.scalar(FOR), occurrence="first")
        mine = pc.fill_null(pc.equal(named, pa.scalar(self.writer.encode())), True)
        mask: npt.NDArray[np.bool_] = mine.to_numpy(zero_copy_only=False)
        return mask

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
                rows = function.apply(_taken(rows, mask)).merged(_taken(rows, ~mask))
        return rows

    def _by_columns(self, rows: Rows) -> Rows | None:
        default = Function.apply_columns
        if any(f.namespace is not ALL or type(f).apply_columns is default for f in self.functions):
            return None
        if any(field.metadata for field in rows.columns.schema):
            # Some values are unlike: those that are left may be alike.
            return None
        by_columns: Rows | None = rows
        for function in self.functions:
            if not by_columns:
                break
            by_columns = function.apply_columns(by_columns)
        return by_columns


def control_mask(records: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each record whether it tells of the source rather than of a row of it."""
    modes, ops = records["mode"].to_numpy(), records["op"].to_numpy()
    mask: npt.NDArray[np.bool_] = (modes == Mode.COMPLETE) | (ops >= Op.COMMAND)
    return mask


def _taken(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    return rows if mask.all() else rows.take(np.flatnonzero(mask).tolist())
