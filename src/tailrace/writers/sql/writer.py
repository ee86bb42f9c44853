"""The options of the `sql` writer, which writes rows to the tables of a database exactly once.

Rows and their offsets are stored in one transaction, so after any crash the database has a row
together with its offset, or neither. A fenced attempt can store nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from tailrace.errors import ConfigError, InvalidValue
from tailrace.hub.hub import Hub
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writer import Attempt, LocalSink, Writer, WriterSession
from tailrace.writers.sql.names import check_template

if TYPE_CHECKING:
    from tailrace.writers.sql.database import SqlDatabase


class CreateMode(StrEnum):
    """The objects that the writer may create from the data."""

    NOTHING = "nothing"
    TABLES = "tables"
    COLUMNS = "columns"


class SqlWriter(Writer, frozen=True):
    """Writes rows to the tables of a database, exactly once."""

    url: Annotated[
        str,
        Meta(
            description="The database, as an SQLAlchemy URL. A relative path of a SQLite file"
            " starts at the directory of the pipeline file.",
            examples=["sqlite:///crm.db", "postgresql://user:password@host:5432/shop"],
            extra={"secret": True},
        ),
    ]
    table: Annotated[
        str,
        Meta(
            description="The table. {namespace} stands for the record's namespace, {name} for the"
            " part after its last dot. In PostgreSQL, a.b is table b in schema a.",
            examples=["{namespace}", "crm.{name}"],
        ),
    ] = "{namespace}"
    key: Annotated[
        tuple[str, ...],
        Meta(
            description="The columns that identify a row, for upserts and deletes. Default: the"
            " identity that the reader sets; rows without one are only inserted.",
            examples=[["id"]],
        ),
    ] = ()
    create: Annotated[
        Literal["nothing", "tables", "columns"],
        Meta(
            description="What the writer may create: nothing, tables, or columns. With columns, it"
            " creates tables and widens columns too.",
            examples=["columns"],
        ),
    ] = "columns"

    stores_offsets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_template(self.table)
        if self.create not in set(CreateMode):
            raise InvalidValue("create", self.create, ", ".join(CreateMode))

    def __repr__(self) -> str:
        return f"SqlWriter(url='***', table={self.table!r}, key={self.key}, create={self.create!r})"

    def resolve_paths(self, directory: Path) -> SqlWriter:
        """Return the writer with the path of a SQLite file relative to a directory."""
        url = _database_module().resolve_path(self.url, directory)
        return msgspec.structs.replace(self, url=url)

    def check(self) -> str:
        """Connect, and return the database product and its version."""
        return self._database().describe()

    def create_sink(self) -> None:
        """Create the file of a SQLite database if it does not exist."""
        self._database().create()

    def local_sink(self, hub: Hub) -> LocalSink | None:
        """Return the directory of a SQLite file, whose locks work on one host; None for servers."""
        file = self._database().file
        return None if file is None else LocalSink(os.path.dirname(file), one_host=True)

    def open(self, attempt: Attempt) -> WriterSession:
        """Begin an attempt, and fence all older ones in the database."""
        database = self._database()
        from tailrace.writers.sql.session import SqlSession

        name_table = partial(database.naming.table, self.table)
        return SqlSession(database, attempt, name_table, self.key, CreateMode(self.create))

    def applied(self, writer: str, stream: str, hub: Hub) -> Sequence[Offsets]:
        """Return the offsets of a stream that the database has, by its own table."""
        database = self._database()
        from tailrace.writers.sql.applied import stored_ranges

        return stored_ranges(database, writer, stream)

    def applied_logs(self, writer: str, hub: Hub | None) -> frozenset[str]:
        """Return the commit logs whose rows the database has, by its own table."""
        database = self._database()
        from tailrace.writers.sql.applied import stored_logs

        return stored_logs(database, writer)

    def forget(self, writer: str, stream: str, start: int, hub: Hub) -> None:
        """Remove `start` and later offsets from the database's own table."""
        database = self._database()
        from tailrace.writers.sql.applied import forget_ranges

        forget_ranges(database, writer, stream, start)

    def _database(self) -> SqlDatabase:
        database: SqlDatabase = _database_module().database_at(self.url)
        return database


def _database_module() -> ModuleType:
    """Import the module of databases late: the options are readable without SQLAlchemy."""
    try:
        from tailrace.writers.sql import database
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise ConfigError(
            "the sql writer needs SQLAlchemy, which is not installed",
            "install it: pip install 'tailrace[sql]'",
        ) from None
    return database
