"""Names of tables and columns: from namespaces and fields, refused where they cannot be names."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.errors import InvalidValue

APPLIED: Final = "tailrace_applied"
"""The table in which each database keeps what was applied to it."""

_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_PLACEHOLDERS: Final = {"namespace", "name"}
_SHOWN_MAX: Final = 60


class TableName(NamedTuple):
    """A table, in a schema where the database has schemas and one was named."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class Naming(NamedTuple):
    """What a database allows as names: of how many bytes, and whether `a.b` is b in schema a."""

    schemas: bool
    bytes_max: int
    folds_case: bool

    def table(self, template: str, namespace: str) -> TableName:
        """The table of a namespace. `ValueError` says why there can be none."""
        parts = {"namespace": namespace, "name": namespace.rpartition(".")[2]}
        text = _PLACEHOLDER.sub(lambda found: parts[found[1]], template)
        schema, dot, name = text.partition(".") if self.schemas else ("", "", text)
        if not dot:
            schema, name = "", text
        elif schema.startswith("pg_") or schema == "information_schema":
            raise ValueError(f"the schema {shown(schema)} of {shown(text)} is the database's own")
        for part in (schema, name) if dot else (name,):
            self.check(part, "table", text)
        if name.lower() == APPLIED:
            raise ValueError(f"the table {APPLIED} holds what was applied, and no rows")
        return TableName(schema if dot else None, name)

    def check(self, name: str, what: str, whole: str | None = None) -> None:
        """`ValueError` for what no name of a table or column can be."""
        size = len(name.encode("utf-8", "surrogatepass"))
        if not name or "\0" in name:
            reason = "it is empty" if not name else "it has a zero character"
        elif size > self.bytes_max:
            reason = f"it has {size} bytes and the database allows {self.bytes_max}"
        else:
            return
        raise ValueError(f"{shown(whole or name)} cannot be the name of a {what}: {reason}")

    def fold(self, name: str) -> str:
        """The same for all names that are the same to the database."""
        return name.lower() if self.folds_case else name


def check_template(template: str) -> None:
    """`InvalidValue` for a table option that names no table."""
    unknown = set(_PLACEHOLDER.findall(template)) - _PLACEHOLDERS
    if unknown or not template:
        raise InvalidValue(
            "table", template, "a table's name, in which {namespace} and {name} are filled in"
        )


def shown(name: str) -> str:
    """A name for people, cut where it is long."""
    text = repr(name)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."
