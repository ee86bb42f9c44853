"""`rename`: move fields to other names or other places of the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.errors import InvalidValue
from tailrace.functions.path import MISSING, check_path, tree_of, value_at, without
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Document, RowError, Rows


class Rename(Function, frozen=True):
    """Moves fields: each of `moves` is the old and the new path of a field.

    All fields are removed before any is set, so two fields can swap names. A field that a document
    does not have is not moved. A value at the new path is replaced.
    """

    moves: tuple[tuple[str, str], ...]

    def apply(self, rows: Rows) -> Rows:
        """Return every row, its fields moved."""
        if not any("." in path for move in self.moves for path in move):
            moved = [_renamed(document, self.moves) for document in rows.documents]
        else:
            moved = self._moved(rows)
        return rows.with_documents(moved)

    def apply_columns(self, rows: Rows) -> Rows | None:
        """Do the same on columns.

        None if a path leads into a field, or if a new name exists: then the result differs by
        document.
        """
        if any("." in path for move in self.moves for path in move):
            return None
        names, moves = rows.columns.schema.names, dict(self.moves)
        renamed = [moves.get(name, name) for name in names]
        if len(set(renamed)) < len(names):
            return None
        return rows.with_columns(rows.columns.rename_columns(renamed))

    def _moved(self, rows: Rows) -> list[Document]:
        moves = [(old.split("."), new.split(".")) for old, new in self.moves]
        tree = tree_of(old for old, _ in self.moves)
        moved = []
        for index, document in enumerate(rows.documents):
            # If no field was removed, none is to be set.
            rest = without(document, tree)
            if rest is not document:
                for old, new in moves:
                    value = value_at(document, old)
                    if value is not MISSING and not _put(rest, new, value):
                        paths = f"{'.'.join(old)} cannot move to {'.'.join(new)}"
                        reason = f"rename: {paths}: not in an object"
                        raise RowError(rows.offsets[index], reason)
            moved.append(rest)
        return moved


def _renamed(document: Document, moves: Sequence[tuple[str, str]]) -> Document:
    """Return a document with top-level fields moved, the common case: without walking paths."""
    rest: Document | None = None
    for old, _ in moves:
        if old in document:
            rest = document.copy() if rest is None else rest
            del rest[old]
    if rest is None:
        return document
    for old, new in moves:
        if old in document:
            rest[new] = document[old]
    return rest


def _put(document: Document, names: Sequence[str], value: Any) -> bool:
    """Set a value in a document of our own; copy or create the objects on the path."""
    *above, last = names
    for name in above:
        inner = document.get(name, {})
        if not isinstance(inner, dict):
            return False
        document[name] = inner.copy()
        document = document[name]
    document[last] = value
    return True


def rename(fields: Mapping[str, str], *, namespace: str | None = None) -> Rename:
    """Return a function that moves fields: ``fn.rename({"customer.name": "name"})``."""
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidValue("fields", fields, 'old and new names, such as {"a.b": "c"}')
    moves = tuple((check_path(old), check_path(new)) for old, new in fields.items())
    if len(set(fields.values())) < len(fields):
        raise InvalidValue("fields", dict(fields), "each new name once")
    return Rename(moves, namespace=NamespaceFilter.parse(namespace))
