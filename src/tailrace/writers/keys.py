"""What a record is keyed by on its way into a topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tailrace.errors import InvalidValue
from tailrace.log.schema import HEADERS
from tailrace.pipeline.chain import control_mask
from tailrace.pipeline.rows import Document, Rows
from tailrace.source.headers import IDENTITY

NAMESPACE_HEADER: Final = "namespace"
"""The header that has the namespace of a record whose key is another."""


class KeyKind(Enum):
    """Where keys come from."""

    NAMESPACE = "namespace"
    IDENTITY = "identity"
    NONE = "none"
    FIELD = "a field"


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """Where keys come from, and which field that is."""

    kind: KeyKind
    path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> KeyChoice:
        """Read ``namespace``, ``identity``, ``none``, or the dotted path of a field."""
        for kind in (KeyKind.NAMESPACE, KeyKind.IDENTITY, KeyKind.NONE):
            if text == kind.value:
                return cls(kind)
        path = tuple(text.split("."))
        if not all(path):
            raise InvalidValue("key", text, "namespace, identity, none, or a field: customer.id")
        return cls(KeyKind.FIELD, path)


def rekeyed(rows: Rows, choice: KeyChoice) -> pa.RecordBatch:
    """The records, encoded, without offsets and with other keys; `RowError` for what is no JSON.

    A row that has no identity, or not that field, has no key. Control records keep the namespace.
    """
    records = rows.encoded
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    del columns["offset"]
    if choice.kind is not KeyKind.NAMESPACE:
        columns["key"] = _keys(rows, choice)
        columns["headers"] = _with_namespaces(records)
    return pa.RecordBatch.from_pydict(columns)


def _keys(rows: Rows, choice: KeyChoice) -> pa.Array[Any]:
    namespaces = rows.records["key"].to_pylist()
    controls = control_mask(rows.records)
    chosen: Iterator[bytes | None] = iter(())
    if choice.kind is KeyKind.IDENTITY:
        chosen = _identities(rows.records.filter(pa.array(~controls))["headers"])
    elif choice.kind is KeyKind.FIELD:
        documents = rows.take(np.flatnonzero(~controls).tolist()).documents
        chosen = (_field(document, choice.path) for document in documents)
    pairs = zip(namespaces, controls.tolist(), strict=True)
    keys = [name if is_control else next(chosen, None) for name, is_control in pairs]
    return pa.array(keys, pa.binary())


def _identities(headers: pa.Array[Any]) -> Iterator[bytes | None]:
    for pairs in headers.to_pylist():
        yield dict(pairs or ()).get(IDENTITY)


def _field(document: Document, path: tuple[str, ...]) -> bytes | None:
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, order="sorted")


def _with_namespaces(records: pa.RecordBatch) -> pa.Array[Any]:
    count = records.num_rows
    if records["headers"].null_count == count and not records["key"].null_count:
        ends: Any = pa.array(np.arange(count + 1, dtype=np.int32))
        names = pa.repeat(NAMESPACE_HEADER, count)
        alone: pa.Array[Any] = pa.MapArray.from_arrays(ends, names, records["key"])
        return alone
    namespaces: list[Any] = records["key"].to_pylist()
    headers = [dict(pairs or ()) for pairs in records["headers"].to_pylist()]
    named = [
        {**header, NAMESPACE_HEADER: namespace} if namespace else header
        for header, namespace in zip(headers, namespaces, strict=True)
    ]
    return pa.array([list(header.items()) or None for header in named], HEADERS)
