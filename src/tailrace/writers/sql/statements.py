"""The SQL text of statements: built once for a table and its columns, executed for many rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy.engine import Dialect

from tailrace.writers.fitting import EXACT_MAX
from tailrace.writers.sql.database import LOCK_TIMEOUT_S, SqlConnection
from tailrace.writers.sql.names import TableName

_LOCK_ID: Final = int.from_bytes(b"tailrace", "big", signed=True)


def placeholder(dialect: Dialect) -> str:
    """Return the marker of a positional parameter."""
    return "?" if dialect.paramstyle == "qmark" else "%s"


@contextmanager
def schema_transaction(connection: SqlConnection) -> Iterator[None]:
    """Begin a transaction that creates tables and columns, one at a time in the whole database."""
    with connection.transaction() as cursor:
        if connection.dialect.name == "postgresql":
            cursor.execute(f"SELECT pg_advisory_xact_lock({_LOCK_ID})")
        elif connection.dialect.name != "sqlite":
            cursor.execute(f"SELECT GET_LOCK('{_LOCK_ID}', {LOCK_TIMEOUT_S})")
        yield
        if connection.dialect.name not in ("postgresql", "sqlite"):
            cursor.execute(f"SELECT RELEASE_LOCK('{_LOCK_ID}')")


class Statements:
    """Builds the SQL of one database product."""

    def __init__(self, dialect: Dialect) -> None:
        self._name = dialect.name
        self._mark = placeholder(dialect)
        self._preparer = dialect.identifier_preparer

    def table(self, name: TableName) -> str:
        """Return a quoted table name."""
        quote = self._preparer.quote_identifier
        schema = "" if name.schema is None else quote(name.schema) + "."
        return schema + quote(name.name)

    def columns(self, names: Sequence[str]) -> str:
        """Return quoted column names, separated by commas."""
        return ", ".join(map(self._preparer.quote_identifier, names))

    def insert(self, table: str, columns: Sequence[str]) -> str:
        """Return the statement that inserts a row."""
        marks = ", ".join([self._mark] * len(columns))
        return f"{self._into(table, columns)} VALUES ({marks})"

    def _into(self, table: str, columns: Sequence[str]) -> str:
        # PostgreSQL refuses values for identity columns without this clause.
        overriding = " OVERRIDING SYSTEM VALUE" if self._name == "postgresql" else ""
        return f"INSERT INTO {table} ({self.columns(columns)}){overriding}"

    def upsert(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return the statement that inserts a row, or updates the row with that key."""
        return self.insert(table, columns) + self._on_conflict(columns, key)

    def upsert_from(
        self, stage: str, table: str, columns: Sequence[str], key: Sequence[str]
    ) -> str:
        """Return the statement that upserts all rows of the table `stage`."""
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
        """Return the statement that updates a row. Parameters: the columns, then the key."""
        quote = self._preparer.quote_identifier
        sets = ", ".join(f"{quote(name)} = {self._mark}" for name in columns)
        return f"UPDATE {table} SET {sets} WHERE {self._where(key)}"

    def find_large(self, table: str, column: str) -> str:
        """Return the statement that finds an integer that is not exact in double precision."""
        quoted = self._preparer.quote_identifier(column)
        return (
            f"SELECT 1 FROM {table} WHERE {quoted} NOT BETWEEN -{EXACT_MAX} AND {EXACT_MAX} LIMIT 1"
        )

    def widen(self, table: str, column: str) -> Sequence[str]:
        """Return the statements that change a column of integers to double precision."""
        quoted = self._preparer.quote_identifier(column)
        if self._name == "postgresql":
            return (f"ALTER TABLE {table} ALTER COLUMN {quoted} TYPE DOUBLE PRECISION",)
        if self._name != "sqlite":
            return (f"ALTER TABLE {table} MODIFY COLUMN {quoted} DOUBLE",)
        # SQLite cannot change the type of a column; the new column is the last one of the table.
        wider = self._preparer.quote_identifier(f"{column} (wider)")
        return (
            f"ALTER TABLE {table} ADD COLUMN {wider} DOUBLE",
            f"UPDATE {table} SET {wider} = {quoted}",
            f"ALTER TABLE {table} DROP COLUMN {quoted}",
            f"ALTER TABLE {table} RENAME COLUMN {wider} TO {quoted}",
        )

    def delete(self, table: str, key: Sequence[str]) -> str:
        """Return the statement that deletes a row by its key."""
        return f"DELETE FROM {table} WHERE {self._where(key)}"

    def _where(self, key: Sequence[str]) -> str:
        quote = self._preparer.quote_identifier
        return " AND ".join(f"{quote(name)} = {self._mark}" for name in key)
