"""Merge the records of a batch into one change for each row of a table.

Rows with an identity are upserted or deleted by it. The changes of a row are merged, so a batch
becomes a few large statements. Where changes cannot be merged without reading the database, the
batch is split there, so their order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.message import Op
from tailrace.pipeline.transform.rows import Document, RowError, Rows
from tailrace.source.reader import IDENTITY
from tailrace.writers.sql.names import TableName, display_name

Identity: TypeAlias = "tuple[Any, ...]"
_SCALARS: Final = frozenset({str, int, float, bool})
_identity_decoder = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class TableChanges:
    """Changes to different rows of one table.

    The rows in `deletes` are deleted first; then `upserts` and `inserts` are written, in any order.
    Without a `key`, rows have no identity.
    """

    table: TableName
    key: tuple[str, ...]
    deletes: dict[Identity, None] = field(default_factory=dict)
    upserts: dict[Identity, Document] = field(default_factory=dict)
    inserts: list[Document] = field(default_factory=list)


class MovedRow(NamedTuple):
    """A row whose identity changes: its identity `before`, and its document."""

    table: TableName
    key: tuple[str, ...]
    before: Identity
    document: Document


ChangeStep: TypeAlias = "TableChanges | MovedRow"


class _ChangedRow(NamedTuple):
    offset: int
    op: Op
    document: Document
    identity: Mapping[str, Any] | None


def plan_changes(
    rows: Rows, name_table: Callable[[str], TableName], key: tuple[str, ...]
) -> Sequence[ChangeStep]:
    """Return the steps that apply rows, in order; raise `RowError` for a row that cannot be.

    `key` are the columns of the identity. If it is empty, the identity comes from the record's
    header, or the row has none.
    """
    steps: list[ChangeStep] = []
    open_changes: dict[TableName, TableChanges] = {}
    names: dict[str, TableName] = {}
    for namespace, row in _rows_of(rows):
        table = names.get(namespace)
        if table is None:
            try:
                table = names[namespace] = name_table(namespace)
            except ValueError as error:
                raise RowError(row.offset, str(error)) from None
        columns = key or tuple(row.identity or ())
        changes = open_changes.get(table)
        if changes is None or (columns and changes.key != columns):
            if changes is not None and not changes.key:
                changes.key = columns
            else:
                changes = open_changes[table] = TableChanges(table, columns)
                steps.append(changes)
        moved = _add(changes, columns, row)
        if moved is not None:
            steps.append(moved)
            del open_changes[table]
    return steps


def _rows_of(rows: Rows) -> Iterator[tuple[str, _ChangedRow]]:
    """Yield each row with its namespace."""
    rest = zip(rows.offsets, rows.ops, rows.documents, _identities(rows), strict=True)
    return zip(rows.namespaces, map(_ChangedRow._make, rest), strict=True)


def _identities(rows: Rows) -> Sequence[Mapping[str, Any] | None]:
    headers = rows.records["headers"]
    count = len(rows)
    if headers.null_count == count:
        return [None] * count
    found: list[bytes | None] = pc.map_lookup(headers, pa.scalar(IDENTITY), "first").to_pylist()
    decoded: list[Mapping[str, Any] | None] = []
    for index, each in enumerate(found):
        try:
            decoded.append(None if each is None else _identity_decoder.decode(each))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = f"its header {IDENTITY!r} is not a JSON object: {error}"
            raise RowError(rows.offsets[index], reason) from None
    return decoded


def _add(changes: TableChanges, key: tuple[str, ...], row: _ChangedRow) -> MovedRow | None:
    """Add a row to the changes, or return it as a step of its own."""
    if not key:
        if row.op is Op.DELETE:
            reason = "it deletes a row without an identity: name its columns with the option key"
            raise RowError(row.offset, reason)
        changes.inserts.append(row.document)
        return None
    before = _values_of(row.identity, key)
    if row.op is Op.DELETE:
        deleted = before or _values_of(row.document, key)
        identity = _check_identity(row, key, deleted)
        changes.upserts.pop(identity, None)
        changes.deletes[identity] = None
        return None
    identity = _check_identity(row, key, _values_of(row.document, key))
    if before is not None and before != identity and row.op is Op.UPDATE:
        return MovedRow(changes.table, key, _check_identity(row, key, before), row.document)
    earlier = changes.upserts.get(identity)
    changes.upserts[identity] = row.document if earlier is None else {**earlier, **row.document}
    return None


def _values_of(values: Mapping[str, Any] | None, key: tuple[str, ...]) -> Identity | None:
    """Return the values of the key columns; None if one is missing."""
    try:
        return None if values is None else tuple([values[name] for name in key])
    except KeyError:
        return None


def _check_identity(row: _ChangedRow, key: tuple[str, ...], identity: Identity | None) -> Identity:
    if identity is None:
        lacking = next(name for name in key if name not in row.document)
        raise RowError(
            row.offset,
            f"the row has no {display_name(lacking)}, which is part of its key: "
            "keep the field, or name other columns with the option key",
        )
    if _SCALARS.issuperset(map(type, identity)):
        return identity
    name, value = next(
        each for each in zip(key, identity, strict=True) if type(each[1]) not in _SCALARS
    )
    what = "null" if value is None else "nested"
    raise RowError(
        row.offset, f"the {display_name(name)} of the row is {what}, but it is part of its key"
    )
