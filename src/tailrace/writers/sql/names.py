"""Derive the names of tables and columns from namespaces and fields, and check them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.errors import InvalidValue

APPLIED: Final = "tailrace_applied"
"""The table in which the writer stores the applied offsets."""

_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_PLACEHOLDERS: Final = {"namespace", "name"}
_SHOWN_MAX: Final = 60


class TableName(NamedTuple):
    """A table, with a schema if the database has schemas and the name has one."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class Naming(NamedTuple):
    """The rules of a database for names. With `schemas`, `a.b` is table b in schema a."""

    schemas: bool
    bytes_max: int
    folds_case: bool

    def table(self, template: str, namespace: str) -> TableName:
        """Return the table of a namespace; raise `ValueError` if the name is not allowed."""
        parts = {"namespace": namespace, "name": namespace.rpartition(".")[2]}
        text = _PLACEHOLDER.sub(lambda found: parts[found[1]], template)
        schema, dot, name = text.partition(".") if self.schemas else ("", "", text)
        if not dot:
            schema, name = "", text
        elif schema.startswith("pg_") or schema == "information_schema":
            raise ValueError(
                f"{display_name(text)} is in the schema {display_name(schema)}, "
                "which is reserved for the database"
            )
        for part in (schema, name) if dot else (name,):
            self.check(part, "table", text)
        if name.lower() == APPLIED:
            raise ValueError(f"the table {APPLIED} is reserved for the writer")
        return TableName(schema if dot else None, name)

    def check(self, name: str, what: str, whole: str | None = None) -> None:
        """Raise `ValueError` if the database does not allow a name for a table or column."""
        size = len(name.encode("utf-8", "surrogatepass"))
        if not name or "\0" in name:
            reason = "it is empty" if not name else "it contains a zero byte"
        elif size > self.bytes_max:
            reason = f"it has {size} bytes, the limit of the database is {self.bytes_max}"
        else:
            return
        raise ValueError(f"{display_name(whole or name)} cannot be the name of a {what}: {reason}")

    def fold(self, name: str) -> str:
        """Return the form by which the database compares names."""
        return name.lower() if self.folds_case else name


def check_template(template: str) -> None:
    """Raise `InvalidValue` if the option `table` is not a valid template."""
    unknown = set(_PLACEHOLDER.findall(template)) - _PLACEHOLDERS
    if unknown or not template:
        raise InvalidValue(
            "table", template, "a table name, with {namespace} and {name} as placeholders"
        )


def display_name(name: str) -> str:
    """Return a name in quotes for an error, cut if it is long."""
    text = repr(name)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
