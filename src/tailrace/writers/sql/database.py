"""Databases by URL, and connections to them.

SQLAlchemy finds the driver, quotes names, inspects tables and creates them. Rows are written
through the cursor of the driver, with SQL that is built once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from tailrace.errors import BackendUnavailable, ConfigError, Error, OutcomeUnknown
from tailrace.pipeline.writer import SinkRefused
from tailrace.writers.sql.errors import (
    ErrorCause,
    RetryTransaction,
    RowsRefused,
    error_cause,
    error_text,
)
from tailrace.writers.sql.names import Naming

CONNECT_TIMEOUT_S: Final = 10
LOCK_TIMEOUT_S: Final = 30
PAUSE_TIMEOUT_S: Final = 20
SILENCE_S: Final = 30
"""How long the host of a server may be silent before its connection is lost."""

_DRIVERS: Final = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_PRODUCTS: Final = {
    "postgresql": "PostgreSQL",
    "sqlite": "SQLite",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
}


def parse_url(text: str) -> URL:
    """Parse the URL of a database; raise `ConfigError`, without the URL in its text."""
    try:
        url = make_url(text)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        port = url.port
    except (ArgumentError, ValueError):
        raise ConfigError(
            "url is not the URL of a database",
            "valid: sqlite:///crm.db, postgresql://user:password@host:5432/shop, mysql://…",
        ) from None
    del port
    if url.get_backend_name() not in _PRODUCTS:
        raise ConfigError(
            f"the sql writer does not support the database {url.get_backend_name()!r} of url",
            f"valid: {', '.join(_PRODUCTS)}",
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "url is a SQLite database in memory, which is lost when the connection closes",
            "name a file: sqlite:///crm.db",
        )
    return url


def public_url(url: URL) -> str:
    """Return a URL without user, password and options, for messages."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def resolve_path(text: str, directory: Path) -> str:
    """Return a URL with the relative path of a SQLite file resolved against a directory."""
    url = parse_url(text)
    if url.get_backend_name() != "sqlite" or str(url.database).startswith("file:"):
        return text
    file = directory / str(url.database)
    return url.set(database=str(file)).render_as_string(hide_password=False)


@lru_cache(maxsize=16)
def database_at(text: str) -> SqlDatabase:
    """Return the database of a URL: one object for each URL and process, without connections."""
    return SqlDatabase(parse_url(text))


class SqlDatabase:
    """A database, by URL. `url` has no user and no password."""

    def __init__(self, url: URL) -> None:
        self.url = public_url(url)
        self._full_url = url
        self.engine = _engine(url)
        dialect = self.engine.dialect
        self.naming = Naming(
            schemas=dialect.name == "postgresql",
            bytes_max=dialect.max_identifier_length,
            folds_case=dialect.name in ("sqlite", "mysql", "mariadb"),
        )

    @property
    def file(self) -> str | None:
        """The absolute path of a SQLite file, also if the URL has it as ``file:``; else None."""
        if self.engine.dialect.name != "sqlite":
            return None
        name = str(self._full_url.database)
        return os.path.abspath(urlsplit(name).path if name.startswith("file:") else name)

    @property
    def missing(self) -> bool:
        """True if the database is a file that does not exist yet."""
        name = str(self._full_url.database)
        is_file = self.engine.dialect.name == "sqlite" and not name.startswith("file:")
        return is_file and not Path(name).exists()

    def describe(self) -> str:
        """Connect, and return the product, its version and the URL. Writes nothing."""
        if self.missing:
            return self._describe_missing()
        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
                if self.engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("PRAGMA schema_version")
        except DBAPIError as error:
            raise self._unreached(error) from None
        return f"{self._product()} at {self.url}"

    def _describe_missing(self) -> str:
        parent = Path(str(self._full_url.database)).absolute().parent
        if not parent.is_dir():
            raise BackendUnavailable(
                f"{self.url} cannot be created: there is no directory {parent}",
                "create the directory, or mount its disk",
            )
        module: Any = self.engine.dialect.loaded_dbapi
        return f"SQLite {module.sqlite_version} will create {self.url}"

    def _product(self) -> str:
        dialect: Any = self.engine.dialect
        name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
        version = ".".join(str(part) for part in dialect.server_version_info or ())
        return f"{_PRODUCTS.get(name, name)} {version}".rstrip()

    def create(self) -> None:
        """Create the database if it is a file that does not exist yet."""
        if self.missing:
            self._connect().close()

    def connect(self) -> SqlConnection:
        """Open a connection for writing.

        Raises `BackendUnavailable` if the database cannot be reached, and `SinkRefused` if it
        refuses the login. A missing file is not created: its disk may have been unmounted.
        """
        if self.missing:
            raise BackendUnavailable(
                f"{self.url} does not exist", "mount its disk, or restore the file"
            )
        return self._connect()

    def _connect(self) -> SqlConnection:
        try:
            return SqlConnection(self)
        except DBAPIError as error:
            raise self._unreached(error) from None
        except Exception as error:
            if error_cause(self.engine.dialect, error, None) is None:
                raise
            raise self._unreached(error) from None

    def _unreached(self, error: BaseException) -> Error:
        """Return the error of a connection that could not be made."""
        if error_cause(self.engine.dialect, error, None) is ErrorCause.REFUSAL:
            return self._refused(error)
        return self._unavailable(error)

    def _refused(self, error: BaseException) -> SinkRefused:
        return SinkRefused(f"{self.url} refuses the writer: {self.safe_text(error)}")

    def _unavailable(self, error: BaseException) -> BackendUnavailable:
        return BackendUnavailable(f"{self.url} is unavailable: {self.safe_text(error)}")

    def safe_text(self, error: BaseException) -> str:
        """Return the message of the database, without the password."""
        text = error_text(error)
        for secret in (self._full_url.password, self._full_url.query.get("password")):
            text = text.replace(str(secret), "***") if secret else text
        return text

    def translate(self, error: BaseException, connection: Any) -> BaseException:
        """Return an error of the driver as an error of Tailrace; any other error unchanged."""
        cause = error_cause(self.engine.dialect, error, connection)
        if cause is None:
            return error
        if cause is ErrorCause.DATABASE:
            return self._unavailable(error)
        if cause is ErrorCause.REFUSAL:
            return self._refused(error)
        if cause is ErrorCause.CONFLICT:
            return RetryTransaction(self._unavailable(error))
        refused = RowsRefused(f"{self.url} refused the rows: {self.safe_text(error)}")
        return RetryTransaction(refused) if cause is ErrorCause.TABLES else refused


class SqlConnection:
    """One connection to a database. For one thread."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.dialect = database.engine.dialect
        self.sqlalchemy = database.engine.connect()
        """SQLAlchemy's connection, to inspect and create tables."""
        self.raw = cast(Any, self.sqlalchemy.connection.dbapi_connection)
        self.cursor: Any = self.raw.cursor()
        """The driver's cursor, to write rows."""
        self._begin = None
        if self.dialect.name == "sqlite":
            self._begin = "BEGIN IMMEDIATE"
            try:
                self.raw.isolation_level = None
                self.cursor.execute("PRAGMA journal_mode=WAL")
                self.cursor.execute("PRAGMA synchronous=NORMAL")
            except BaseException:
                self.close()
                raise

    @contextmanager
    def synced_transaction(self) -> Iterator[Any]:
        """Begin a transaction of SQLite whose commit syncs it and all earlier ones to disk.

        Other transactions are not synced: one sync for many small transactions makes them several
        times faster. A machine crash before the sync loses rows together with their offsets.
        """
        self.cursor.execute("PRAGMA synchronous=FULL")
        try:
            with self.transaction() as cursor:
                yield cursor
        finally:
            self.cursor.execute("PRAGMA synchronous=NORMAL")

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Begin a transaction; commit it at the end of the block, or roll it back on an error.

        Raises `RowsRefused` if the database refuses rows, `SinkRefused` if it refuses the writer,
        `RetryTransaction` if a table changed or the database preferred another transaction,
        `OutcomeUnknown` if the reply to the commit is lost, and `BackendUnavailable` for every
        other failure.
        """
        try:
            if self._begin is not None:
                self.cursor.execute(self._begin)
            yield self.cursor
        except BaseException as error:
            self._rollback()
            known = self.database.translate(error, self.raw)
            raise known from (None if known is not error else error.__cause__)
        self._commit()

    def _commit(self) -> None:
        try:
            (self.sqlalchemy if self.sqlalchemy.in_transaction() else self.raw).commit()
        except Exception as error:
            self._rollback()
            known = self.database.translate(error, self.raw)
            if isinstance(known, BackendUnavailable) and not isinstance(known, RetryTransaction):
                known = OutcomeUnknown(
                    f"{self.database.url} did not answer a commit: {self.database.safe_text(error)}"
                )
            raise known from None

    def _rollback(self) -> None:
        try:
            (self.sqlalchemy if self.sqlalchemy.in_transaction() else self.raw).rollback()
        except Exception:  # The connection is lost, and the transaction with it.
            self.sqlalchemy.invalidate()

    def close(self) -> None:
        """Close the connection."""
        try:
            self.sqlalchemy.close()
        except Exception:  # The connection is lost already.
            self.sqlalchemy.invalidate()


def _engine(url: URL) -> Engine:
    try:
        engine = create_engine(
            url, poolclass=NullPool, hide_parameters=True, connect_args=_arguments(url)
        )
        if engine.dialect.name in ("mysql", "mariadb"):
            # The default level locks gaps between rows, so streams would block each other.
            engine = engine.execution_options(isolation_level="READ COMMITTED")
    except NoSuchModuleError:
        raise ConfigError(
            f"SQLAlchemy does not know the driver {url.drivername!r} of url",
            f"omit the driver: {url.get_backend_name()}://…",
        ) from None
    except ImportError as error:
        driver = url.get_driver_name()
        package = "'tailrace[postgres]'" if driver == "psycopg" else str(error.name or driver)
        raise ConfigError(
            f"the driver {driver!r} of {url.get_backend_name()} is not installed",
            f"install it: pip install {package}",
        ) from None
    if engine.dialect.is_async:
        raise ConfigError(
            f"the driver {url.get_driver_name()!r} of url works with asynchronous code only",
            f"omit the driver: {url.get_backend_name()}://…",
        )
    return engine


def _arguments(url: URL) -> dict[str, Any]:
    """Return the connection arguments that the URL does not set."""
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        arguments = {"timeout": LOCK_TIMEOUT_S}
    elif url.get_driver_name() == "psycopg":
        arguments = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            # A server that was cut off by the network is noticed, also while a reply is awaited.
            "keepalives_idle": SILENCE_S // 3,
            "keepalives_interval": SILENCE_S // 6,
            "keepalives_count": 4,
            "tcp_user_timeout": SILENCE_S * 1000,
            "client_encoding": "utf8",
            "application_name": "tailrace",
            # A paused client loses its transaction before other clients time out on its locks.
            "options": f"-c lock_timeout={LOCK_TIMEOUT_S}s"
            f" -c idle_in_transaction_session_timeout={PAUSE_TIMEOUT_S}s",
        }
    elif url.get_driver_name() == "pymysql":
        arguments = {"connect_timeout": CONNECT_TIMEOUT_S}
    return {name: value for name, value in arguments.items() if name not in url.query}
