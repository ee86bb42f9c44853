"""Rows as changes to tables: what must happen to each row of a table, once for a whole batch.

Rows with an identity are upserted or deleted by it, and of a row's changes only their sum counts,
so any batch is a few large statements. Where that sum cannot be known without the database, the
batch is cut there, so order always holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.message import Op
from tailrace.pipeline.rows import Document, RowError, Rows
from tailrace.source.headers import IDENTITY
from tailrace.writers.sql_names import TableName, shown

Identity: TypeAlias = "tuple[Any, ...]"
_SCALARS: Final = frozenset({str, int, float, bool})
_identity_decoder = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class Changes:
    """Changes to different rows of one table, in any order: first the rows that are `gone`, then
    the documents to upsert by their identity and those to insert. No key: no identities."""

    table: TableName
    key: tuple[str, ...]
    gone: dict[Identity, None] = field(default_factory=dict)
    upserts: dict[Identity, Document] = field(default_factory=dict)
    inserts: list[Document] = field(default_factory=list)


class Moved(NamedTuple):
    """A row that gets another identity: the one it had, and its document."""

    table: TableName
    key: tuple[str, ...]
    before: Identity
    document: Document


Step: TypeAlias = "Changes | Moved"


class _Row(NamedTuple):
    offset: int
    op: Op
    document: Document
    identity: Mapping[str, Any] | None


def plan(
    rows: Rows, name_table: Callable[[str], TableName], key: tuple[str, ...]
) -> Sequence[Step]:
    """The steps that apply rows, in order. `RowError` for a row that cannot be applied.

    `key` are the columns of each identity; with none, rows name their own or have none.
    """
    steps: list[Step] = []
    open_changes: dict[TableName, Changes] = {}
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
                changes = open_changes[table] = Changes(table, columns)
                steps.append(changes)
        moved = _take(changes, columns, row)
        if moved is not None:
            steps.append(moved)
            del open_changes[table]
    return steps


def _rows_of(rows: Rows) -> Iterator[tuple[str, _Row]]:
    """Each row with its namespace."""
    rest = zip(rows.offsets, rows.ops, rows.documents, _identities(rows), strict=True)
    return zip(rows.namespaces, map(_Row._make, rest), strict=True)


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
        except msgspec.DecodeError as error:
            reason = f"its header {IDENTITY!r} is no JSON object: {error}"
            raise RowError(rows.offsets[index], reason) from None
    return decoded


def _take(changes: Changes, key: tuple[str, ...], row: _Row) -> Moved | None:
    """Add a row to changes, or say that it is a step of its own."""
    if not key:
        if row.op is Op.DELETE:
            reason = "it deletes a row that has no identity: name the columns by the option key"
            raise RowError(row.offset, reason)
        changes.inserts.append(row.document)
        return None
    before = _named(row.identity, key)
    if row.op is Op.DELETE:
        gone = before or _named(row.document, key)
        identity = _checked(row, key, gone)
        changes.upserts.pop(identity, None)
        changes.gone[identity] = None
        return None
    identity = _checked(row, key, _named(row.document, key))
    if before is not None and before != identity and row.op is Op.UPDATE:
        return Moved(changes.table, key, _checked(row, key, before), row.document)
    earlier = changes.upserts.get(identity)
    changes.upserts[identity] = row.document if earlier is None else {**earlier, **row.document}
    return None


def _named(values: Mapping[str, Any] | None, key: tuple[str, ...]) -> Identity | None:
    """The values of a key, or None where one is not there."""
    try:
        return None if values is None else tuple([values[name] for name in key])
    except KeyError:
        return None


def _checked(row: _Row, key: tuple[str, ...], identity: Identity | None) -> Identity:
    if identity is None:
        lacking = next(name for name in key if name not in row.document)
        raise RowError(
            row.offset,
            f"it has no {shown(lacking)}, which is of its identity: keep the field, or name other "
            "columns by the option key",
        )
    if _SCALARS.issuperset(map(type, identity)):
        return identity
    name, value = next(
        each for each in zip(key, identity, strict=True) if type(each[1]) not in _SCALARS
    )
    what = "null" if value is None else "nested"
    raise RowError(row.offset, f"its {shown(name)} is {what}, and is of its identity")
