"""The records of one stream on their way through a chain of functions into a writer.

They start as the columns that were read. Documents are decoded when the first function or writer
needs them, and encoded at most once, so a chain that needs no documents decodes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import Error
from tailrace.message import Op
from tailrace.pipeline.transform.columns import columns_of, documents_of
from tailrace.pipeline.transform.json_columns import parse_columns

Document: TypeAlias = "dict[str, Any]"

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError)

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class RowError(Error, ValueError):
    """A single record that cannot be transformed; the other records of its batch may be fine."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"record at offset {offset}: {reason}")


class Rows:
    """Records in `tailrace.log.schema.SCHEMA`, in order of their offsets, and their documents.

    Immutable: methods return new rows. One record may have become several rows with the same
    offset; missing offsets were dropped.
    """

    __slots__ = ("_columns", "_documents", "_encoded", "records")

    def __init__(
        self, records: pa.RecordBatch, documents: Sequence[Document] | None = None
    ) -> None:
        self.records = records
        self._documents = documents
        self._columns: pa.RecordBatch | None = None
        self._encoded = documents is None

    def __len__(self) -> int:
        return self.records.num_rows

    @property
    def offsets(self) -> list[int]:
        """The offset of each row."""
        offsets: list[int] = self.records["offset"].to_numpy().tolist()
        return offsets

    @property
    def namespaces(self) -> list[str]:
        """The namespace of each row: its key as text."""
        keys = self.records["key"].to_pylist()
        return [(key or b"").decode("utf-8", "backslashreplace") for key in keys]

    @property
    def ops(self) -> list[Op]:
        """The operation of each row."""
        by_number = tuple(Op)
        return [by_number[number] for number in self.records["op"].to_numpy().tolist()]

    @property
    def documents(self) -> Sequence[Document]:
        """The document of each row, which must not be changed.

        `RowError` if a value is not a JSON object.
        """
        if self._documents is None and self._columns is not None and not self._encoded:
            self._documents = documents_of(self._columns)
        if self._documents is None:
            values: list[Any] = self.records["value"].to_pylist()
            try:
                self._documents = [_decode(value) if value else {} for value in values]
            except _UNDECODABLE:
                raise self._undecodable(values) from None
        return self._documents

    def _undecodable(self, values: list[bytes]) -> RowError:
        for offset, value in zip(self.offsets, values, strict=True):
            try:
                _decode(value or b"{}")
            except _UNDECODABLE as error:
                return RowError(offset, f"its value is not a JSON object: {error}")
        raise AssertionError("one value did not decode")

    @property
    def columns(self) -> pa.RecordBatch:
        """The documents as columns, see `transform.columns`.

        `RowError` if a value is not a JSON object, or has no column type.
        """
        if self._columns is None and self._documents is None:
            self._columns = parse_columns(self.records["value"])
        if self._columns is None:
            try:
                self._columns = columns_of(self.documents)
            except RowError:
                raise
            except (TypeError, ValueError) as error:
                raise RowError(self.offsets[0], str(error)) from error
        return self._columns

    @property
    def encoded(self) -> pa.RecordBatch:
        """The records, with the current documents as values."""
        if not self._encoded:
            values = pa.array(list(map(_encode, self.documents)), pa.binary())
            self.records = self._with_column("value", values)
            self._encoded = True
        return self.records

    def with_documents(self, documents: Sequence[Document]) -> Rows:
        """Return the same rows with other documents, one for each row."""
        assert len(documents) == len(self)
        return Rows(self.records, documents)

    def with_columns(self, columns: pa.RecordBatch) -> Rows:
        """Return the same rows with other documents, as columns; null and absent are the same."""
        assert columns.num_rows == len(self)
        rows = Rows(self.records)
        rows._columns, rows._encoded = columns, False
        return rows

    def with_namespaces(self, namespaces: Sequence[str]) -> Rows:
        """Return the same rows under other namespaces, one for each row."""
        keys = pa.array([namespace.encode() for namespace in namespaces], pa.binary())
        return self._replaced(self._with_column("key", keys))

    def take(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> Rows:
        """Return the rows at these indices; an index may occur several times."""
        chosen = np.asarray(indices, np.int64)
        if len(chosen) == len(self) and bool((chosen == np.arange(len(self))).all()):
            return self
        taken = Rows(self.records.take(chosen))
        taken._encoded = self._encoded
        if self._documents is not None:
            taken._documents = [self._documents[index] for index in chosen.tolist()]
        if self._columns is not None:
            taken._columns = self._columns.take(chosen)
        return taken

    def untyped(self) -> Rows:
        """Return the same rows, whose columns are typed by their own values alone.

        Rows that were taken from others have columns with the types of all of them.
        """
        rows = Rows(self.records, self._documents if self._encoded else self.documents)
        rows._encoded = self._encoded
        return rows

    def where(self, keep: Sequence[bool]) -> Rows:
        """Return the rows for which `keep` is true."""
        return self.take([index for index, kept in enumerate(keep) if kept])

    def merged(self, other: Rows) -> Rows:
        """Return these rows and others in order of their offsets; no record may be in both.

        Values that were not decoded stay the same to the byte.
        """
        decoded = self._documents is not None and other._documents is not None
        parts = [self.records, other.records] if decoded else [self.encoded, other.encoded]
        pairs = zip(parts[0].columns, parts[1].columns, strict=True)
        columns = [pa.concat_arrays(pair) for pair in pairs]
        order = np.argsort(columns[0].to_numpy(), kind="stable")
        rows = Rows(pa.RecordBatch.from_arrays(columns, schema=parts[0].schema).take(order))
        if decoded:
            documents = [*self.documents, *other.documents]
            rows._documents = [documents[index] for index in order.tolist()]
            rows._encoded = self._encoded and other._encoded
        return rows

    def _replaced(self, records: pa.RecordBatch) -> Rows:
        rows = Rows(records)
        rows._documents, rows._columns = self._documents, self._columns
        rows._encoded = self._encoded
        return rows

    def _with_column(self, name: str, column: pa.Array[Any]) -> pa.RecordBatch:
        columns = list(self.records.columns)
        columns[self.records.schema.get_field_index(name)] = column
        return pa.RecordBatch.from_arrays(columns, schema=self.records.schema)
