"""Classify the errors of database drivers: caused by the rows, the tables or the database.

A database that cannot be reached, is locked or full is waited for. A database that refuses the
writer needs an operator.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError

from tailrace.errors import BackendUnavailable, Error


class RowsRefused(Error, ValueError):
    """The database refused rows. Nothing of the batch was written."""


class RetryTransaction(BackendUnavailable):
    """Nothing was written, and a retry may succeed; if it does not, raise `final`."""

    def __init__(self, final: Error) -> None:
        self.final = final
        super().__init__(str(final))


class ErrorCause(Enum):
    """The cause of an error."""

    ROWS = "the rows"
    TABLES = "a table that changed since it was inspected"
    CONFLICT = "a conflict with another transaction"
    DATABASE = "the database or the connection to it"
    REFUSAL = "a refusal of the writer: its password, its rights, a damaged database"


_POSTGRES_TABLES: Final = {"42P01", "42703", "42P10", "3F000", "42701", "42P07"}
_POSTGRES_DATABASE: Final = ("08", "25", "53", "55", "57", "58")
_POSTGRES_REFUSAL: Final = ("28", "3D", "42501", "XX")
_POSTGRES_LOGIN_REFUSED: Final = re.compile(
    r"password authentication failed|authentication failed for user|no password supplied"
    r'|role ".*" does not exist|database ".*" does not exist|no pg_hba\.conf entry'
    r"|is not permitted to log in|permission denied for database"
)
"""Messages with which PostgreSQL refuses a login. Its drivers do not pass on the SQLSTATE then. The
writer waits for a server whose messages are in another language."""

_SQLITE_DATABASE: Final = {3, 5, 6, 7, 8, 9, 10, 13, 14, 15, 17}
_SQLITE_REFUSAL: Final = {11, 22, 23, 26}
_SQLITE_TABLES: Final = ("no such table", "no such column", "has no column", "ON CONFLICT clause")
_MYSQL_TABLES: Final = {1050, 1051, 1054, 1060, 1146}
_MYSQL_CONFLICT: Final = {1020, 1213}
_MYSQL_DATABASE: Final = {1021, 1040, 1041, 1053, 1205, 1290, 1836, 3024}
_MYSQL_REFUSAL: Final = {1044, 1045, 1049, 1142, 1143}


def driver_error(error: BaseException) -> BaseException:
    """Return the error of the driver."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def error_cause(dialect: Dialect, error: BaseException, connection: Any) -> ErrorCause | None:
    """Return the cause of an error; None if it is not an error of the driver."""
    found = driver_error(error)
    module: Any = dialect.loaded_dbapi
    if isinstance(found, OverflowError):  # sqlite3, for an integer beyond 64 bits
        return ErrorCause.ROWS
    if not isinstance(found, module.Error):
        return None
    if dialect.is_disconnect(found, connection, None) or isinstance(found, module.InterfaceError):
        return ErrorCause.DATABASE
    if dialect.name == "postgresql":
        return _postgres_cause(found)
    if dialect.name == "sqlite":
        return _sqlite_cause(found)
    code = found.args[0] if found.args else None
    if code in _MYSQL_REFUSAL:
        return ErrorCause.REFUSAL
    return _first_cause(code in _MYSQL_DATABASE, code in _MYSQL_TABLES, code in _MYSQL_CONFLICT)


def _postgres_cause(error: BaseException) -> ErrorCause:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None:  # A failed connection, or a value that the driver cannot send.
        if "DataError" in map(_name, type(error).mro()):
            return ErrorCause.ROWS
        refused = _POSTGRES_LOGIN_REFUSED.search(str(error)) is not None
        return ErrorCause.REFUSAL if refused else ErrorCause.DATABASE
    if state.startswith(_POSTGRES_REFUSAL):
        return ErrorCause.REFUSAL
    return _first_cause(
        state.startswith(_POSTGRES_DATABASE), state in _POSTGRES_TABLES, state.startswith("40")
    )


def _name(kind: type) -> str:
    return kind.__name__


def _sqlite_cause(error: BaseException) -> ErrorCause:
    code = getattr(error, "sqlite_errorcode", 1) & 0xFF
    if code in _SQLITE_REFUSAL:
        return ErrorCause.REFUSAL
    stale = any(sign in str(error) for sign in _SQLITE_TABLES)
    return _first_cause(code in _SQLITE_DATABASE, stale)


def _first_cause(database: bool, tables: bool, conflict: bool = False) -> ErrorCause:
    if database or conflict:
        return ErrorCause.DATABASE if database else ErrorCause.CONFLICT
    return ErrorCause.TABLES if tables else ErrorCause.ROWS


def error_text(error: BaseException) -> str:
    """Return the message of the database, on one line."""
    found = driver_error(error)
    diagnosis = getattr(found, "diag", None)
    # The drivers of MySQL give a number and a message.
    text = str(found.args[-1] if len(found.args) == 2 else found)
    if diagnosis is not None and diagnosis.message_primary:
        parts = [diagnosis.message_primary, diagnosis.message_detail, diagnosis.context]
        text = " · ".join(part for part in parts if part)
    return " ".join(text.split())
