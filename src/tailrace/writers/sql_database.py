"""Databases by URL: how they are reached, and one connection to one of them.

Rows are written through the driver's own cursor with SQL that was made once; SQLAlchemy finds the
driver, quotes names, looks at tables and makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from tailrace.errors import BackendUnavailable, ConfigError, OutcomeUnknown
from tailrace.writers.sql_errors import Blame, Refused, TryAgain, blame, sentence
from tailrace.writers.sql_names import Naming

CONNECT_TIMEOUT_S: Final = 10
LOCK_TIMEOUT_S: Final = 30
PAUSE_TIMEOUT_S: Final = 20

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
    """A database's URL, with the driver that Tailrace uses. `ConfigError` tells nothing of it."""
    try:
        url = make_url(text)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        port = url.port
    except (ArgumentError, ValueError):
        raise ConfigError(
            "url is no URL of a database",
            "valid: sqlite:///crm.db, postgresql://user:password@host:5432/shop, mysql://…",
        ) from None
    del port
    if url.get_backend_name() not in _PRODUCTS:
        raise ConfigError(
            f"url is of a database that the sql writer cannot use: {url.get_backend_name()!r}",
            f"valid: {', '.join(_PRODUCTS)}",
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "url is a database in memory, which ends with each connection",
            "name a file: sqlite:///crm.db",
        )
    return url


def place_of(url: URL) -> str:
    """Where a database is, for people: without user, password and options."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def beside(text: str, directory: Path) -> str:
    """A URL whose SQLite file, if its path is relative, lies in a directory; others as they are."""
    url = parse_url(text)
    if url.get_backend_name() != "sqlite" or str(url.database).startswith("file:"):
        return text
    file = directory / str(url.database)
    return url.set(database=str(file)).render_as_string(hide_password=False)


@lru_cache(maxsize=16)
def database_at(text: str) -> Database:
    """The database of a URL: one for each URL and process. It holds no connection."""
    return Database(parse_url(text))


class Database:
    """A database that may be connected to."""

    def __init__(self, url: URL) -> None:
        self.place = place_of(url)
        self._url = url
        self.engine = _engine(url)
        dialect = self.engine.dialect
        self.naming = Naming(
            schemas=dialect.name == "postgresql",
            bytes_max=dialect.max_identifier_length,
            folds_case=dialect.name in ("sqlite", "mysql", "mariadb"),
        )

    @property
    def missing(self) -> bool:
        """Whether it is a file that is not there yet."""
        name = str(self._url.database)
        is_file = self.engine.dialect.name == "sqlite" and not name.startswith("file:")
        return is_file and not Path(name).exists()

    def look(self) -> str:
        """What it is and of which version. Writes nothing."""
        if self.missing:
            return self._will_be_made()
        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
                if self.engine.dialect.name == "sqlite":
                    connection.exec_driver_sql("PRAGMA schema_version")
        except DBAPIError as error:
            raise self._unavailable(error) from None
        return f"{self._product()} at {self.place}"

    def _will_be_made(self) -> str:
        parent = Path(str(self._url.database)).absolute().parent
        if not parent.is_dir():
            raise ConfigError(
                f"{self.place} cannot be made: there is no directory {parent}", "make it"
            )
        module: Any = self.engine.dialect.loaded_dbapi
        return f"SQLite {module.sqlite_version} will make {self.place}"

    def _product(self) -> str:
        dialect: Any = self.engine.dialect
        name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
        version = ".".join(str(part) for part in dialect.server_version_info or ())
        return f"{_PRODUCTS.get(name, name)} {version}".rstrip()

    def connect(self) -> Link:
        """A connection to write through. `BackendUnavailable` when there is none to be had."""
        try:
            return Link(self)
        except DBAPIError as error:
            raise self._unavailable(error) from None
        except Exception as error:
            if blame(self.engine.dialect, error, None) is None:
                raise
            raise self._unavailable(error) from None

    def _unavailable(self, error: BaseException) -> BackendUnavailable:
        return BackendUnavailable(f"{self.place} cannot be used: {self.told(error)}")

    def told(self, error: BaseException) -> str:
        """The database's own words, and in no case the password."""
        text = sentence(error)
        for secret in (self._url.password, self._url.query.get("password")):
            text = text.replace(str(secret), "***") if secret else text
        return text

    def translated(self, error: BaseException, connection: Any) -> BaseException:
        """An error of the driver as one of ours; any other one as it is."""
        reason = blame(self.engine.dialect, error, connection)
        if reason is None:
            return error
        if reason is Blame.DATABASE:
            return self._unavailable(error)
        if reason is Blame.RIVALS:
            return TryAgain(self._unavailable(error))
        refused = Refused(f"{self.place} refused it: {self.told(error)}")
        return TryAgain(refused) if reason is Blame.TABLES else refused


class Link:
    """One connection, for one thread."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.dialect = database.engine.dialect
        self.connection = database.engine.connect()
        """For looking at tables and making them."""
        self.raw = cast(Any, self.connection.connection.dbapi_connection)
        self.cursor: Any = self.raw.cursor()
        """For rows: the driver's."""
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
        """A transaction of SQLite that is on the disk when it ends, as are all before it.

        Others are not synced: one sync for many small transactions makes them several times faster,
        and a crash of the machine before it takes back rows and their offsets together.
        """
        self.cursor.execute("PRAGMA synchronous=FULL")
        try:
            with self.transaction() as cursor:
                yield cursor
        finally:
            self.cursor.execute("PRAGMA synchronous=NORMAL")

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """All that is done with the cursor within, or nothing.

        Raises `Refused` for rows that the database does not take, `TryAgain` where tables are not
        as they were or another transaction was preferred, and else `BackendUnavailable`;
        `OutcomeUnknown` when the answer to the commit did not come.
        """
        try:
            if self._begin is not None:
                self.cursor.execute(self._begin)
            yield self.cursor
        except BaseException as error:
            self._rollback()
            known = self.database.translated(error, self.raw)
            raise known from (None if known is not error else error.__cause__)
        self._commit()

    def _commit(self) -> None:
        try:
            (self.connection if self.connection.in_transaction() else self.raw).commit()
        except Exception as error:
            self._rollback()
            known = self.database.translated(error, self.raw)
            if isinstance(known, BackendUnavailable) and not isinstance(known, TryAgain):
                known = OutcomeUnknown(
                    f"{self.database.place} did not say whether it committed: "
                    f"{self.database.told(error)}"
                )
            raise known from None

    def _rollback(self) -> None:
        try:
            (self.connection if self.connection.in_transaction() else self.raw).rollback()
        except Exception:  # The connection is gone, and the transaction with it.
            self.connection.invalidate()

    def close(self) -> None:
        """Give the connection back."""
        try:
            self.connection.close()
        except Exception:  # It is gone already.
            self.connection.invalidate()


def _engine(url: URL) -> Engine:
    try:
        engine = create_engine(
            url, poolclass=NullPool, hide_parameters=True, connect_args=_arguments(url)
        )
        if engine.dialect.name in ("mysql", "mariadb"):
            # Its default locks gaps between rows, in which streams would wait for each other.
            engine = engine.execution_options(isolation_level="READ COMMITTED")
    except NoSuchModuleError:
        raise ConfigError(
            f"url names {url.drivername!r}, which SQLAlchemy does not know",
            f"leave the driver out: {url.get_backend_name()}://…",
        ) from None
    except ImportError as error:
        driver = url.get_driver_name()
        package = "'tailrace[postgres]'" if driver == "psycopg" else str(error.name or driver)
        raise ConfigError(
            f"the driver {driver!r} of {url.get_backend_name()} is not installed",
            f"pip install {package}",
        ) from None
    if engine.dialect.is_async:
        raise ConfigError(
            f"url names the driver {url.get_driver_name()!r}, which only asynchronous code can use",
            f"leave it out: {url.get_backend_name()}://…",
        )
    return engine


def _arguments(url: URL) -> dict[str, Any]:
    """What a connection gets beside what its URL says."""
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        arguments = {"timeout": LOCK_TIMEOUT_S}
    elif url.get_driver_name() == "psycopg":
        arguments = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "client_encoding": "utf8",
            "application_name": "tailrace",
            # A client that is paused in a transaction gives way before others give up.
            "options": f"-c lock_timeout={LOCK_TIMEOUT_S}s"
            f" -c idle_in_transaction_session_timeout={PAUSE_TIMEOUT_S}s",
        }
    elif url.get_driver_name() == "pymysql":
        arguments = {"connect_timeout": CONNECT_TIMEOUT_S}
    return {name: value for name, value in arguments.items() if name not in url.query}
