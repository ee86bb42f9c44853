"""What a database's error means: is it the data, what we believe of its tables, or itself?"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from tailrace.errors import BackendUnavailable, Error


class Refused(Error, ValueError):
    """The database does not take these rows. Nothing of the batch was written."""


class TryAgain(BackendUnavailable):
    """Nothing was written, and doing it again may help; if it does not, `final` is the error."""

    def __init__(self, final: Error) -> None:
        self.final = final
        super().__init__(str(final))


class Blame(Enum):
    """Where the reason of an error lies."""

    ROWS = "the rows"
    TABLES = "tables that are not as they were"
    RIVALS = "another transaction, which was preferred"
    DATABASE = "the database or the way to it"


_POSTGRES_TABLES: Final = {"42P01", "42703", "42P10", "3F000", "42701", "42P07"}
_POSTGRES_DATABASE: Final = ("08", "25", "28", "3D", "42501", "53", "55", "57", "58", "XX")
_SQLITE_DATABASE: Final = {3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 17, 22, 23, 26}
_SQLITE_TABLES: Final = ("no such table", "no such column", "has no column", "ON CONFLICT clause")
_MYSQL_TABLES: Final = {1050, 1051, 1054, 1060, 1146}
_MYSQL_RIVALS: Final = {1020, 1213}
_MYSQL_DATABASE: Final = {1021, 1040, 1041, 1044, 1045, 1142, 1143, 1205, 1290, 1836, 3024}


def root(error: BaseException) -> BaseException:
    """The driver's own error."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def blame(dialect: Dialect, error: BaseException, connection: Any) -> Blame | None:
    """Where the reason lies; None for what is no error of the database."""
    found = root(error)
    module: Any = dialect.loaded_dbapi
    if isinstance(found, OverflowError):  # sqlite3, of an integer beyond 64 bits
        return Blame.ROWS
    if not isinstance(found, module.Error):
        return None
    if dialect.is_disconnect(found, connection, None) or isinstance(found, module.InterfaceError):
        return Blame.DATABASE
    if dialect.name == "postgresql":
        return _blame_postgres(found)
    if dialect.name == "sqlite":
        return _blame_sqlite(found)
    code = found.args[0] if found.args else None
    return _chosen(code in _MYSQL_DATABASE, code in _MYSQL_TABLES, code in _MYSQL_RIVALS)


def _blame_postgres(error: BaseException) -> Blame:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None:  # It is not of the server: a connection that failed, or a bad value.
        return _chosen("DataError" not in map(_name, type(error).mro()), False)
    return _chosen(
        state.startswith(_POSTGRES_DATABASE), state in _POSTGRES_TABLES, state.startswith("40")
    )


def _name(kind: type) -> str:
    return kind.__name__


def _blame_sqlite(error: BaseException) -> Blame:
    code = getattr(error, "sqlite_errorcode", 1) & 0xFF
    stale = any(sign in str(error) for sign in _SQLITE_TABLES)
    return _chosen(code in _SQLITE_DATABASE, stale)


def _chosen(database: bool, tables: bool, rivals: bool = False) -> Blame:
    if database or rivals:
        return Blame.DATABASE if database else Blame.RIVALS
    return Blame.TABLES if tables else Blame.ROWS


def sentence(error: BaseException) -> str:
    """The database's own words, in a line."""
    found = root(error)
    diagnosis = getattr(found, "diag", None)
    # MySQL's drivers give a number and a sentence.
    text = str(found.args[-1] if len(found.args) == 2 else found)
    if diagnosis is not None and diagnosis.message_primary:
        parts = [diagnosis.message_primary, diagnosis.message_detail, diagnosis.context]
        text = " · ".join(part for part in parts if part)
    return " ".join(text.split())
