"""PostgreSQL's COPY: the fastest way for many rows into a table, by psycopg's own cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tailrace.writers.sql_forms import Form
from tailrace.writers.sql_statements import Statements

_STAGE: Final = "pg_temp.tailrace_stage"


def copy_rows(
    cursor: Any, statements: Statements, form: Form, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows."""
    _copy(cursor, form.table.quoted, statements.columns(form.names), rows)


def copy_upsert(
    cursor: Any, statements: Statements, form: Form, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows of different keys, or update those that are there: by way of a table that only
    this transaction sees."""
    columns, table = statements.columns(form.names), form.table.quoted
    select = f"SELECT {columns} FROM {table} WITH NO DATA"
    cursor.execute(f"CREATE TEMPORARY TABLE {_STAGE} AS {select}", ())
    _copy(cursor, _STAGE, columns, rows)
    cursor.execute(statements.upsert_from(_STAGE, table, form.names, form.key_names), ())
    cursor.execute(f"DROP TABLE {_STAGE}", ())


def _copy(cursor: Any, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    # Quoting doubles each % for statements with parameters, of which COPY has none.
    sql = f"COPY {table} ({columns}) FROM STDIN".replace("%%", "%")
    with cursor.copy(sql) as copy:
        write_row = copy.write_row
        for row in rows:
            write_row(row)
