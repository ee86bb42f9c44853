"""SQL as text: made once for a table and some of its columns, run as often as there are rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy.engine import Dialect

from tailrace.writers.sql_database import LOCK_TIMEOUT_S, Link
from tailrace.writers.sql_names import TableName

_LOCK_ID: Final = int.from_bytes(b"tailrace", "big", signed=True)


def placeholder(dialect: Dialect) -> str:
    """How a parameter is written, by its position."""
    return "?" if dialect.paramstyle == "qmark" else "%s"


@contextmanager
def making_tables(link: Link) -> Iterator[None]:
    """A transaction to make tables and columns in: one at a time in a whole database."""
    with link.transaction() as cursor:
        if link.dialect.name == "postgresql":
            cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK_ID})")
        elif link.dialect.name != "sqlite":
            cursor.execute(f"SELECT GET_LOCK('{_LOCK_ID}', {LOCK_TIMEOUT_S})")
        yield
        if link.dialect.name not in ("postgresql", "sqlite"):
            cursor.execute(f"SELECT RELEASE_LOCK('{_LOCK_ID}')")


class Statements:
    """The SQL of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self._name = dialect.name
        self._mark = placeholder(dialect)
        self._preparer = dialect.identifier_preparer

    def table(self, name: TableName) -> str:
        """A table's name, quoted."""
        quote = self._preparer.quote_identifier
        schema = "" if name.schema is None else quote(name.schema) + "."
        return schema + quote(name.name)

    def columns(self, names: Sequence[str]) -> str:
        """Columns, quoted, with commas."""
        return ", ".join(map(self._preparer.quote_identifier, names))

    def insert(self, table: str, columns: Sequence[str]) -> str:
        """Insert a row."""
        marks = ", ".join([self._mark] * len(columns))
        return f"{self._into(table, columns)} VALUES ({marks})"

    def _into(self, table: str, columns: Sequence[str]) -> str:
        # Without it PostgreSQL refuses values for columns that it numbers itself.
        overriding = " OVERRIDING SYSTEM VALUE" if self._name == "postgresql" else ""
        return f"INSERT INTO {table} ({self.columns(columns)}){overriding}"

    def upsert(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """Insert a row, or set these columns of the one that has the key."""
        return self.insert(table, columns) + self._on_conflict(columns, key)

    def upsert_from(
        self, stage: str, table: str, columns: Sequence[str], key: Sequence[str]
    ) -> str:
        """Insert all rows of another table, or set these columns of those that have the key."""
        select = f"SELECT {self.columns(columns)} FROM {stage}"
        return f"{self._into(table, columns)} {select}{self._on_conflict(columns, key)}"

    def _on_conflict(self, columns: Sequence[str], key: Sequence[str]) -> str:
        quote = self._preparer.quote_identifier
        others = [quote(name) for name in columns if name not in key]
        if self._name in ("mysql", "mariadb"):
            sets = [f"{name} = VALUES({name})" for name in others or [quote(key[0])]]
            return f" ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        sets = [f"{name} = excluded.{name}" for name in others]
        action = f"UPDATE SET {', '.join(sets)}" if sets else "NOTHING"
        return f" ON CONFLICT ({self.columns(key)}) DO {action}"

    def update(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """Set columns of the row that has a key: parameters are the columns', then the key's."""
        quote = self._preparer.quote_identifier
        sets = ", ".join(f"{quote(name)} = {self._mark}" for name in columns)
        return f"UPDATE {table} SET {sets} WHERE {self._where(key)}"

    def delete(self, table: str, key: Sequence[str]) -> str:
        """Delete the row that has a key."""
        return f"DELETE FROM {table} WHERE {self._where(key)}"

    def _where(self, key: Sequence[str]) -> str:
        quote = self._preparer.quote_identifier
        return " AND ".join(f"{quote(name)} = {self._mark}" for name in key)
