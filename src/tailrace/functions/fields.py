"""`omit` and `pick`: which fields of a document go on."""

from __future__ import annotations

from tailrace.errors import InvalidValue
from tailrace.functions.path import check_path, only, tree_of, without
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.pipeline.rows import Rows


class Omit(Function, frozen=True):
    """Leaves out fields; those that a document does not have are none the less fine."""

    fields: tuple[str, ...]

    def apply(self, rows: Rows) -> Rows:
        """Every row, its document less the fields."""
        tree = tree_of(self.fields)
        return rows.with_documents([without(document, tree) for document in rows.documents])

    def apply_columns(self, rows: Rows) -> Rows | None:
        """The same, unless a field within a field is meant."""
        if any("." in field for field in self.fields):
            return None
        columns = rows.columns
        kept = [name for name in columns.schema.names if name not in self.fields]
        return rows.with_columns(columns.select(kept))


class Pick(Function, frozen=True):
    """Keeps only some fields; those that a document does not have stay absent."""

    fields: tuple[str, ...]

    def apply(self, rows: Rows) -> Rows:
        """Every row, its document with nothing but the fields."""
        tree = tree_of(self.fields)
        return rows.with_documents([only(document, tree) for document in rows.documents])

    def apply_columns(self, rows: Rows) -> Rows | None:
        """The same, unless a field within a field is meant."""
        if any("." in field for field in self.fields):
            return None
        columns = rows.columns
        names = dict.fromkeys(name for name in self.fields if name in columns.schema.names)
        return rows.with_columns(columns.select(list(names)))


def omit(*fields: str, namespace: str | None = None) -> Omit:
    """Leave out fields, by dotted path: ``fn.omit("card", "customer.password")``."""
    return Omit(_checked(fields), namespace=NamespaceFilter.parse(namespace))


def pick(*fields: str, namespace: str | None = None) -> Pick:
    """Keep nothing but these fields, by dotted path: ``fn.pick("id", "customer.name")``."""
    return Pick(_checked(fields), namespace=NamespaceFilter.parse(namespace))


def _checked(fields: tuple[str, ...]) -> tuple[str, ...]:
    if not fields:
        raise InvalidValue("fields", [], "one field or more")
    return tuple(check_path(field) for field in fields)
