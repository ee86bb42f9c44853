"""Effects in SQLite, through the `sqlite3` module of Python.

A transaction of SQLite is the only one that writes, from its beginning on. So calls of one process
wait for each other here, in line, and only other processes are waited for by SQLite's polling.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from tailrace.errors import EffectsUnavailable, Error, InvalidValue
from tailrace.queue.effects.database import (
    EffectRow,
    StoredUnit,
    TransactionRefused,
    UnitOwner,
)
from tailrace.queue.effects.schema import (
    EFFECTS,
    OWNERS,
    highest_epoch,
    known_rows,
    raise_earlier,
    table_definitions,
    take_owner,
)

_MARK: Final = ":{}"
# Statements are cached by their text, and a cached one is not authorised again: these texts are not
# those of a handler.
_BEGIN: Final = "BEGIN IMMEDIATE -- tailrace"
_COMMIT: Final = "COMMIT -- tailrace"
_ROLLBACK: Final = "ROLLBACK -- tailrace"
_LINE_WAIT_S: Final = 1.0
"""How long a takeover waits for the calls of this process. Its thread has other work, such as
giving up calls that take too long."""
_OUTAGES: Final = frozenset((5, 6, 7, 8, 10, 13, 14, 15))
"""Busy, locked, no memory, read-only, I/O error, full, cannot open, protocol."""

_UPSERT: Final = (
    f"INSERT INTO {EFFECTS} (consumer, unit, stream, block, done) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (consumer, unit, stream, block) DO UPDATE SET done = excluded.done"
)
_DELETE: Final = (
    f"DELETE FROM {EFFECTS} WHERE consumer = ? AND unit = ? AND stream = ? AND block = ?"
)
_OWNER: Final = f"FROM {OWNERS} WHERE consumer = ? AND unit = ? AND epoch = ? AND attempt = ?"


class EffectsConnection(sqlite3.Connection):
    """A connection that refuses to end its transaction while `in_call` is True."""

    in_call = False

    def commit(self) -> None:
        """Commit, unless a call uses the connection."""
        self._check("call commit() of its connection")
        super().commit()

    def rollback(self) -> None:
        """Roll back, unless a call uses the connection."""
        self._check("call rollback() of its connection")
        super().rollback()

    def close(self) -> None:
        """Close, unless a call uses the connection."""
        self._check("call close() of its connection")
        super().close()

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        """Run a script, which commits first, unless a call uses the connection."""
        self._check("call executescript() of its connection, which commits first")
        return super().executescript(sql_script)

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Literal[False]:
        if error is None or not self.in_call:
            self._check("use its connection as a context, which commits at the end")
            return super().__exit__(kind, error, trace)
        return False

    def _check(self, what: str) -> None:
        if self.in_call:
            raise TransactionRefused(what)


class SqliteEffects:
    """A SQLite database, by a call that opens a connection."""

    def __init__(self, connect: Callable[[], Any], name: str, busy_timeout_s: float) -> None:
        self.name = name
        self._connect = connect
        self.busy_timeout_s = busy_timeout_s
        self.line = threading.Lock()
        """Held by the session that is in a transaction."""

    def open(self) -> SqliteSession:
        """Open a connection."""
        return self.session(self._connect())

    def session(self, connection: sqlite3.Connection) -> SqliteSession:
        """Return the session of a new connection; `InvalidValue` if it is one to a hub."""
        try:
            file = opened_file(connection)
            if file is not None:
                refuse_hub_database(file)
            connection.isolation_level = None  # Transactions are begun and ended by statements.
            connection.execute(f"PRAGMA busy_timeout = {round(self.busy_timeout_s * 1000)}")
        except BaseException:
            connection.close()
            raise
        return SqliteSession(connection, self)

    def is_outage(self, error: BaseException) -> bool:
        """True if the file is locked, full, lost or not writable."""
        if not isinstance(error, sqlite3.Error):
            return isinstance(error, OSError)
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _OUTAGES

    def after_fork(self) -> None:
        """Drop a lock that another thread may have held."""
        self.line = threading.Lock()


class SqliteSession:
    """One connection to SQLite."""

    def __init__(self, connection: sqlite3.Connection, database: SqliteEffects) -> None:
        self.connection = connection
        self._database = database
        self._held: threading.Lock | None = None
        self._in_call = False
        connection.set_authorizer(self._authorize)

    def create_tables(self) -> None:
        """Create the tables unless they exist."""
        names = self._rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN (?, ?)",
            (OWNERS, EFFECTS),
        )
        if len(names) < 2:
            with self._own_transaction():
                for statement in table_definitions("blob"):
                    self._rows(statement)

    def take_over(self, owner: UnitOwner) -> StoredUnit:
        """Store an owner, and return what is known to it."""
        values = owner.parameters()
        with self._own_transaction():
            taken = self._rows(take_owner(_MARK), values)
            self._rows(raise_earlier(_MARK), values)
            return self._stored_unit(owner, taken[0][0] if taken else None)

    def begin(self) -> None:
        """Begin the transaction of a handler. It waits for other calls of this process until its
        own timeout: they end, or are given up too."""
        self._begin(line_wait_s=-1)
        self._guard(True)

    def commit(self, owner: UnitOwner, rows: Sequence[EffectRow]) -> None:
        """Check the owner, write rows and commit."""
        self._guard(False)
        if not self.connection.in_transaction:
            raise TransactionRefused("end its transaction by COMMIT or ROLLBACK")
        held = (owner.consumer, owner.unit, owner.epoch, owner.attempt)
        if not self._rows(f"SELECT 1 {_OWNER}", held):
            raise Error("a commit did not find its owner", "nothing was written")
        for row in rows:
            key = (owner.consumer, row.unit, row.stream, row.block)
            if row.done is None:
                self._rows(_DELETE, key)
            else:
                self._rows(_UPSERT, (*key, row.done))
        self._rows(_COMMIT)
        self._leave_line()

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._guard(False)
        if self.connection.in_transaction:  # Some errors of SQLite have rolled it back already.
            self._rows(_ROLLBACK)
        self._leave_line()

    def read_again(self, owner: UnitOwner) -> StoredUnit:
        """Return what is known to the owner. Only reads: a commit ends when its call returns, and
        the thread that holds the write lock may be waiting for this answer."""
        self._rows("BEGIN -- tailrace")
        held = (owner.consumer, owner.unit, owner.epoch, owner.attempt)
        found = self._rows(f"SELECT 1 {_OWNER}", held)
        stored = self._stored_unit(owner, owner.attempt if found else None)
        self._rows(_ROLLBACK)
        return stored

    def close(self) -> None:
        """Close the connection."""
        self._guard(False)
        with contextlib.suppress(Exception):
            self.connection.close()
        self._leave_line()

    def forget(self) -> None:
        """Close the inherited connection, so that SQLite forgets locks that this process has not.

        Nothing is under way in it.
        """
        self._held = None
        self.close()

    @contextlib.contextmanager
    def _own_transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or roll back on an error."""
        self._begin(line_wait_s=min(_LINE_WAIT_S, self._database.busy_timeout_s))
        try:
            yield
            self._rows(_COMMIT)
            self._leave_line()
        except BaseException:
            self.rollback()
            raise

    def _begin(self, line_wait_s: float) -> None:
        """Begin to write, after the calls of this process that came first."""
        line = self._database.line
        if not line.acquire(timeout=line_wait_s):
            raise self._busy("another call of this process", line_wait_s)
        self._held = line
        try:
            self._rows(_BEGIN)
        except sqlite3.OperationalError as error:
            self._leave_line()
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise self._busy("another process", self._database.busy_timeout_s) from error
            raise
        except BaseException:
            self._leave_line()
            raise

    def _busy(self, holder: str, waited_s: float) -> EffectsUnavailable:
        return EffectsUnavailable(
            self._database.name,
            f"{holder} was in a transaction for {waited_s:g} s",
            "let handlers be short, or raise busy_timeout_s",
        )

    def _leave_line(self) -> None:
        line, self._held = self._held, None
        if line is not None:
            line.release()

    def _guard(self, in_call: bool) -> None:
        self._in_call = in_call
        if isinstance(self.connection, EffectsConnection):
            self.connection.in_call = in_call

    def _authorize(self, action: int, *_: object) -> int:
        """Refuse the statements of a handler that begin or end a transaction; savepoints are
        allowed."""
        if self._in_call and action == sqlite3.SQLITE_TRANSACTION:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _stored_unit(self, owner: UnitOwner, attempt: int | None) -> StoredUnit:
        values = owner.parameters()
        ((epoch,),) = self._rows(highest_epoch(_MARK), values)
        rows = self._rows(known_rows(_MARK), values)
        return StoredUnit(epoch or 0, attempt, [EffectRow(*row) for row in rows])

    def _rows(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        return _rows(self.connection, statement, values)


def connector(file: Path, busy_timeout_s: float) -> Callable[[], sqlite3.Connection]:
    """Return a call that connects to a file, which must exist."""

    def connect() -> sqlite3.Connection:
        refuse_hub_database(file)
        if not file.exists():
            raise FileNotFoundError("the file does not exist")
        return sqlite3.connect(
            f"file:{quote(str(file))}?mode=rw",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=EffectsConnection,
        )

    return connect


def opened_file(connection: sqlite3.Connection) -> Path | None:
    """Return the file of a connection; None if it has none."""
    for _, schema, file in _rows(connection, "PRAGMA database_list"):
        if schema == "main" and file:
            return Path(file)
    return None


def refuse_hub_database(file: Path, hub_directory: Path | None = None) -> None:
    """Raise `InvalidValue` if a file is the database of a hub: of this one, or of any."""
    found = file.resolve()
    beside = (found.parent / name for name in ("hub.commit", "hub.lock", "topics"))
    is_hub = found.name == "hub.db" and any(path.exists() for path in beside)
    if hub_directory is not None:
        is_hub = is_hub or found == (hub_directory / "hub.db").resolve()
    if is_hub:
        raise InvalidValue(
            "effects",
            str(file),
            "a database of the application",
            problem=f"{file} is the database of a hub, which only Tailrace may write",
        )


def _rows(
    connection: sqlite3.Connection, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.row_factory = None  # The user or a handler may have set another one.
    try:
        return cursor.execute(statement, values).fetchall()
    finally:
        cursor.close()
