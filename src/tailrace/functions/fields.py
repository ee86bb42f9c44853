"""`omit` and `pick`: select the fields of documents."""

from __future__ import annotations

from tailrace.errors import InvalidValue
from tailrace.functions.path import check_path, only, tree_of, without
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.transform.rows import Rows


class Omit(Function, frozen=True):
    """Removes fields. A document without a field is not changed by it."""

    fields: tuple[str, ...]

    def apply(self, rows: Rows) -> Rows:
        """Return every row, without the fields."""
        tree = tree_of(self.fields)
        return rows.with_documents([without(document, tree) for document in rows.documents])

    def apply_columns(self, rows: Rows) -> Rows | None:
        """Do the same on columns, unless a field is within a field."""
        if any("." in field for field in self.fields):
            return None
        columns = rows.columns
        kept = [name for name in columns.schema.names if name not in self.fields]
        return rows.with_columns(columns.select(kept))


class Pick(Function, frozen=True):
    """Keeps only some fields. A field that a document does not have stays absent."""

    fields: tuple[str, ...]

    def apply(self, rows: Rows) -> Rows:
        """Return every row, with only the fields."""
        tree = tree_of(self.fields)
        return rows.with_documents([only(document, tree) for document in rows.documents])

    def apply_columns(self, rows: Rows) -> Rows | None:
        """Do the same on columns, unless a field is within a field."""
        if any("." in field for field in self.fields):
            return None
        columns = rows.columns
        names = dict.fromkeys(name for name in self.fields if name in columns.schema.names)
        return rows.with_columns(columns.select(list(names)))


def omit(*fields: str, namespace: str | None = None) -> Omit:
    """Return a function that removes fields: ``fn.omit("card", "customer.password")``."""
    return Omit(_checked(fields), namespace=NamespaceFilter.parse(namespace))


def pick(*fields: str, namespace: str | None = None) -> Pick:
    """Return a function that keeps only these fields: ``fn.pick("id", "customer.name")``."""
    return Pick(_checked(fields), namespace=NamespaceFilter.parse(namespace))


def _checked(fields: tuple[str, ...]) -> tuple[str, ...]:
    if not fields:
        raise InvalidValue("fields", [], "one field or more")
    return tuple(check_path(field) for field in fields)
