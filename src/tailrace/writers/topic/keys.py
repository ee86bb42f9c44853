"""Choose the keys of the records that are appended to a topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tailrace.errors import ConfigError, InvalidValue
from tailrace.log.control import control_mask
from tailrace.log.schema import HEADERS
from tailrace.pipeline.transform.rows import Document, Rows
from tailrace.source.reader import IDENTITY

_decode = msgspec.json.Decoder(dict[str, Any]).decode

NAMESPACE_HEADER: Final = "namespace"
"""The header with the namespace of a record, if its key is not the namespace."""


class KeyKind(Enum):
    """The source of the keys."""

    NAMESPACE = "namespace"
    IDENTITY = "identity"
    NONE = "none"
    FIELD = "a field"


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """The source of the keys, and the path of the field if it is one."""

    kind: KeyKind
    path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> KeyChoice:
        """Parse ``namespace``, ``identity``, ``none``, or the dotted path of a field."""
        for kind in (KeyKind.NAMESPACE, KeyKind.IDENTITY, KeyKind.NONE):
            if text == kind.value:
                return cls(kind)
        path = tuple(text.split("."))
        if not all(path):
            raise InvalidValue(
                "key", text, "namespace, identity, none, or the path of a field such as customer.id"
            )
        return cls(KeyKind.FIELD, path)

    @classmethod
    def of_topic(cls, text: str, topic: str, order_by: str | None) -> KeyChoice:
        """Parse the choice of a writer to a topic. A topic with an `order_by` makes the keys.

        `ConfigError` if the writer has chosen another field, or the identity.
        """
        choice = cls.parse(text)
        if order_by is None:
            return choice
        if text != order_by and choice.kind in (KeyKind.FIELD, KeyKind.IDENTITY):
            raise ConfigError(
                f"topic {topic} is ordered by {order_by}, and the key of the writer is {text}",
                "remove the option key",
            )
        return cls(KeyKind.NONE)


def with_keys(rows: Rows, choice: KeyChoice) -> pa.RecordBatch:
    """Return the encoded records with the chosen keys and without offsets.

    A record that lacks the identity or the field has no key. If a field is the key, raises
    `RowError` for a row whose value is not JSON.
    """
    records = rows.encoded
    columns = dict(zip(records.schema.names, records.columns, strict=True))
    del columns["offset"]
    if choice.kind is not KeyKind.NAMESPACE:
        columns["key"] = _keys(rows, choice)
        columns["headers"] = _with_namespaces(records["key"], records["headers"])
    return pa.RecordBatch.from_pydict(columns)


def _keys(rows: Rows, choice: KeyChoice) -> pa.Array[Any]:
    if choice.kind is KeyKind.IDENTITY:
        return pa.array(list(_identities(rows.records["headers"])), pa.binary())
    if choice.kind is KeyKind.FIELD:
        return pa.array([_field(each, choice.path) for each in _documents(rows)], pa.binary())
    return pa.nulls(len(rows), pa.binary())


def _documents(rows: Rows) -> Iterator[Document]:
    """Yield the document of each record. That of a control record may be no JSON: then it is
    empty."""
    controls = control_mask(rows.records)
    documents = iter(rows.take(np.flatnonzero(~controls)).documents)
    values = rows.encoded["value"]
    for index, is_control in enumerate(controls.tolist()):
        yield _control_document(values[index].as_py()) if is_control else next(documents)


def _control_document(value: bytes) -> Document:
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


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


def _with_namespaces(keys: pa.Array[Any], headers: pa.Array[Any]) -> pa.Array[Any]:
    count = len(keys)
    if headers.null_count == count and not keys.null_count:
        ends: Any = pa.array(np.arange(count + 1, dtype=np.int32))
        names = pa.repeat(NAMESPACE_HEADER, count)
        alone: pa.Array[Any] = pa.MapArray.from_arrays(ends, names, keys)
        return alone
    namespaces: list[Any] = keys.to_pylist()
    found = [dict(pairs or ()) for pairs in headers.to_pylist()]
    named = [
        {**header, NAMESPACE_HEADER: namespace} if namespace else header
        for header, namespace in zip(found, namespaces, strict=True)
    ]
    return pa.array([list(header.items()) or None for header in named], HEADERS)
