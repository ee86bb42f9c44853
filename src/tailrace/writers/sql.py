"""The `sql` writer: rows into tables of a database, each exactly once.

Rows and the offsets they came from are stored in one transaction, so whatever dies, a row is there
with its offset or not at all; and an attempt that was overtaken can store nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from tailrace.errors import ConfigError, InvalidValue
from tailrace.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, Writer, WriterSession
from tailrace.writers.sql_names import check_template

if TYPE_CHECKING:
    from tailrace.writers.sql_database import Database


class Create(StrEnum):
    """What the writer may make from the data."""

    NOTHING = "nothing"
    TABLES = "tables"
    COLUMNS = "columns"


class SqlWriter(Writer, frozen=True):
    """Write into the tables of a database, by an SQLAlchemy URL."""

    url: Annotated[
        str,
        Meta(
            description="The database. A relative path of SQLite starts at the definition's file.",
            examples=["sqlite:///crm.db", "postgresql://user:password@host:5432/shop"],
            extra={"secret": True},
        ),
    ]
    table: Annotated[
        str,
        Meta(
            description="The table. {namespace} is the record's namespace, {name} what follows "
            "its last dot. In PostgreSQL a.b is table b of schema a.",
            examples=["{namespace}", "crm.{name}"],
        ),
    ] = "{namespace}"
    key: Annotated[
        tuple[str, ...],
        Meta(
            description="The columns that tell rows apart: rows are upserted and deleted by them. "
            "Default: what the reader says, or else rows are only inserted.",
            examples=[["id"]],
        ),
    ] = ()
    create: Annotated[
        Literal["nothing", "tables", "columns"],
        Meta(
            description="What may be made from the data: nothing, missing tables, or missing "
            "tables and columns.",
            examples=["columns"],
        ),
    ] = "columns"

    keeps_record: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_template(self.table)
        if self.create not in set(Create):
            raise InvalidValue("create", self.create, ", ".join(Create))

    def __repr__(self) -> str:
        return f"SqlWriter(url='***', table={self.table!r}, key={self.key}, create={self.create!r})"

    def beside(self, directory: Path) -> SqlWriter:
        """The same, with a relative path of SQLite starting at a directory."""
        url = _databases().beside(self.url, directory)
        return msgspec.structs.replace(self, url=url)

    def check(self) -> str:
        """Connect, and say what the database is and of which version."""
        return self._database().look()

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt: from now on the database refuses all older ones."""
        database = self._database()
        from tailrace.writers.sql_session import SqlSession

        name_table = partial(database.naming.table, self.table)
        return SqlSession(database, attempt, name_table, self.key, Create(self.create))

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """What the database says it has of a stream."""
        database = self._database()
        from tailrace.writers.sql_applied import stored

        return stored(database, writer, stream)

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """The logs of which the database says it has something."""
        database = self._database()
        from tailrace.writers.sql_applied import stored_logs

        return stored_logs(database, writer)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Let the database say no longer that it has `start` and beyond."""
        database = self._database()
        from tailrace.writers.sql_applied import forget

        forget(database, writer, stream, start)

    def _database(self) -> Database:
        database: Database = _databases().database_at(self.url)
        return database


def _databases() -> ModuleType:
    """What reaches databases, if it is installed: options can be read without it."""
    try:
        from tailrace.writers import sql_database
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise ConfigError(
            "the sql writer needs SQLAlchemy, which is not installed", "pip install 'tailrace[sql]'"
        ) from None
    return sql_database
