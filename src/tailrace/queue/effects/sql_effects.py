"""`SqlEffects`: the database of the user in which a handler has its effects, once each."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tailrace.backend.forking import reset_after_fork
from tailrace.error_text import describe_error
from tailrace.errors import EffectsUnavailable, InvalidValue
from tailrace.queue.effects import postgres, sqlite
from tailrace.queue.effects.connections import Connections
from tailrace.queue.effects.database import EffectsDatabase, UnitOwner
from tailrace.queue.effects.postgres import PostgresEffects
from tailrace.queue.effects.sqlite import SqliteEffects
from tailrace.queue.effects.unit import SqlUnitEffects, fenced
from tailrace.subscription.store.names import ShardName

_SCHEME: Final = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?:\+(?P<driver>\w+))?://")
_DSN: Final = re.compile(r"\b(?:host|hostaddr|dbname|service)\s*=")
_VALID: Final = (
    "postgresql://user:password@host:5432/shop, sqlite:///app.db, the path of a SQLite file, or a"
    " function that returns a new connection of psycopg or sqlite3"
)


class SqlEffects:
    """A PostgreSQL or SQLite database that stores the effects of a handler exactly once.

    `target` is ``postgresql://…``, ``sqlite:///app.db``, the path of a SQLite file, or a function
    that returns a new connection of psycopg or sqlite3 each time. Connections of sqlite3 are used
    by several threads: make them with ``check_same_thread=False``. A SQLite file must exist.

    The tables `tailrace_owners` and `tailrace_effects` are created in the database when it is first
    used. Connections are opened when they are needed, also in a forked child.

    `idle_in_transaction_s` is how long a handler may leave its transaction in PostgreSQL idle, for
    example while it calls another service; the server then ends it, so that a stopped process does
    not hold locks. `busy_timeout_s` is how long a transaction of SQLite waits for other processes.
    `outcome_timeout_s` is how long to ask a database for the outcome of a failed commit.
    """

    def __init__(
        self,
        target: str | Path | Callable[[], Any],
        *,
        idle_in_transaction_s: float = 60.0,
        busy_timeout_s: float = 10.0,
        outcome_timeout_s: float = 30.0,
    ) -> None:
        for name, value in (
            ("idle_in_transaction_s", idle_in_transaction_s),
            ("busy_timeout_s", busy_timeout_s),
            ("outcome_timeout_s", outcome_timeout_s),
        ):
            if not value > 0:
                raise InvalidValue(name, value, "a number of seconds above 0")
        self._idle_s = idle_in_transaction_s
        self._busy_s = busy_timeout_s
        self._outcome_s = outcome_timeout_s
        self._lock = threading.Lock()
        self._connections: Connections | None = None
        self._connect: Callable[[], Any] | None = None
        self._file: Path | None = None
        if callable(target):
            self._connect = target
            reset_after_fork(self)
        else:
            self._connections = Connections(self._database_at(target))

    def __repr__(self) -> str:
        return f"SqlEffects({self._name!r})"

    def check(self, hub_directory: str | Path) -> None:
        """Check that a worker of a hub can use the database: connect, and create the tables.

        Raises `InvalidValue` if it is the database of a hub, and `EffectsUnavailable` if it does
        not answer.
        """
        if self._file is not None:
            sqlite.refuse_hub_database(self._file, Path(hub_directory))
        with self._connected().opened() as session:
            if isinstance(session.connection, sqlite3.Connection):
                file = sqlite.opened_file(session.connection)
                if file is not None:
                    sqlite.refuse_hub_database(file, Path(hub_directory))
            session.create_tables()

    def take_over(self, consumer: str, unit: str, epoch: int) -> SqlUnitEffects:
        """Make a grant the owner of its unit in the database, and return the unit.

        Raises `Fenced` if the database knows a higher epoch of the unit or a later generation, and
        `EffectsUnavailable` if it does not answer.
        """
        owner = UnitOwner(consumer, ShardName.parse(unit), epoch)
        connections = self._connected()
        with connections.opened() as session:
            session.create_tables()
            stored = session.take_over(owner)
        if stored.attempt is None:
            raise fenced(owner, stored.epoch)
        owner = owner._replace(attempt=stored.attempt)
        return SqlUnitEffects(connections, owner, stored, self._outcome_s)

    def close(self) -> None:
        """Close the idle connections. Connections that calls use are closed when those end."""
        with self._lock:
            if self._connections is not None:
                self._connections.close()

    def after_fork(self) -> None:
        """Drop a lock that another thread may have held, in a forked child."""
        self._lock = threading.Lock()

    @property
    def _name(self) -> str:
        if self._connections is not None:
            return self._connections.database.name
        return f"of {getattr(self._connect, '__qualname__', type(self._connect).__name__)}()"

    def _connected(self) -> Connections:
        """Return the connections. The first one of a function says which database it is."""
        with self._lock:
            if self._connections is None:
                self._connections = self._connections_of_function()
            return self._connections

    def _connections_of_function(self) -> Connections:
        assert self._connect is not None
        try:
            connection = self._connect()
        except Exception as error:
            raise EffectsUnavailable(self._name, describe_error(error)) from error
        database: SqliteEffects | PostgresEffects
        if isinstance(connection, sqlite3.Connection):
            name = f"sqlite:///{sqlite.opened_file(connection) or ''}"
            database = SqliteEffects(self._connect, name, self._busy_s)
        elif type(connection).__module__.partition(".")[0] == "psycopg":
            name = postgres.connected_name(connection)
            database = PostgresEffects(self._connect, name, self._idle_s)
        else:
            raise InvalidValue(
                "target",
                self._connect,
                "a function that returns a connection of psycopg or sqlite3",
                problem=f"the function of the target returned a {type(connection).__name__}",
            )
        connection.close()
        return Connections(database)

    def _database_at(self, target: str | Path) -> EffectsDatabase:
        text = str(target)
        scheme = None if isinstance(target, Path) else _SCHEME.match(text)
        kind = "" if scheme is None else scheme["name"].lower()
        if kind in ("postgresql", "postgres") and scheme is not None:
            connect, name = postgres.connector(f"postgresql://{text[scheme.end() :]}")
            return PostgresEffects(connect, name, self._idle_s)
        if scheme is None and isinstance(target, str) and _DSN.search(text):
            return PostgresEffects(*postgres.connector(text), self._idle_s)
        if kind not in ("", "sqlite"):
            # The address may have a password, so only its beginning is shown.
            raise InvalidValue("target", f"{kind}://…", _VALID)
        path = text if scheme is None else text[scheme.end() :].removeprefix("/")
        if path in ("", ":memory:") or path.startswith("file:") or "?" in path:
            raise InvalidValue("target", text, _VALID)
        self._file = Path(path).absolute()
        connect_file = sqlite.connector(self._file, self._busy_s)
        return SqliteEffects(connect_file, f"sqlite:///{self._file}", self._busy_s)
