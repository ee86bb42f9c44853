"""Write many rows with PostgreSQL's COPY, through the cursor of psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tailrace.writers.sql.row_layout import RowLayout
from tailrace.writers.sql.statements import Statements

_STAGE: Final = "pg_temp.tailrace_stage"


def copy_rows(
    cursor: Any, statements: Statements, layout: RowLayout, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows with COPY."""
    _copy(cursor, layout.table.quoted, statements.columns(layout.names), rows)


def copy_upsert(
    cursor: Any, statements: Statements, layout: RowLayout, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Upsert rows with different keys, with COPY into a temporary table of this transaction."""
    columns, table = statements.columns(layout.names), layout.table.quoted
    select = f"SELECT {columns} FROM {table} WITH NO DATA"
    cursor.execute(f"CREATE TEMPORARY TABLE {_STAGE} AS {select}", ())
    _copy(cursor, _STAGE, columns, rows)
    cursor.execute(statements.upsert_from(_STAGE, table, layout.names, layout.key_names), ())
    cursor.execute(f"DROP TABLE {_STAGE}", ())


def _copy(cursor: Any, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    # Quoting doubles each % for statements with parameters; COPY has none.
    sql = f"COPY {table} ({columns}) FROM STDIN".replace("%%", "%")
    with cursor.copy(sql) as copy:
        write_row = copy.write_row
        for row in rows:
            write_row(row)
