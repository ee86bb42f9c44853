"""Effects in PostgreSQL, through psycopg.

Each step of ours is one message with several statements. The server runs it as a whole, also if
this process is stopped right after it was sent. So a stopped process never holds the lock of an
owner's row, which its successor needs. It may hold locks of rows that the handler wrote: the server
ends such a session after `idle_in_transaction_s`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import ConfigError
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

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_S: Final = 10
SILENCE_S: Final = 30
"""How long the host of a server may be silent before its connection is lost."""

_LOCK_TIMEOUT_S: Final = 10
_REFUSED: Final = ("commit", "rollback", "close")
_OUTAGES: Final = ("08", "25P03", "53", "55", "57", "58")
"""SQLSTATEs, or their beginnings, of a server that cannot answer now."""

_MARK: Final = "%({})s"
_BEGIN_OWN: Final = (
    # A query has to see what was committed while it waited for a lock.
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    f" SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s';"
    f" SET LOCAL statement_timeout = '{2 * _LOCK_TIMEOUT_S}s'; "
)
_TABLES_EXIST: Final = (
    f"SELECT to_regclass('{OWNERS}') IS NOT NULL AND to_regclass('{EFFECTS}') IS NOT NULL"
)
CREATE_TABLES: Final = (
    f"{_BEGIN_OWN} SELECT pg_advisory_xact_lock(hashtextextended('{OWNERS}', 0));"
    f" {'; '.join(table_definitions('bytea'))}; COMMIT"
)
_TAKE_OVER: Final = (
    # Owners of one consumer are stored one after the other: an owner of an earlier generation that
    # is not stored yet must find the later one.
    f"{_BEGIN_OWN} SELECT pg_advisory_xact_lock(hashtextextended(%(consumer)s, 0));"
    f" {take_owner(_MARK)}; {raise_earlier(_MARK)}; {highest_epoch(_MARK)}; {known_rows(_MARK)};"
    " COMMIT"
)
_READ_AGAIN: Final = (
    f"{_BEGIN_OWN} UPDATE {OWNERS} SET attempt = attempt + 1 WHERE consumer = %(consumer)s"
    " AND unit = %(unit)s AND epoch = %(epoch)s AND attempt = %(attempt)s RETURNING attempt;"
    f" {highest_epoch(_MARK)}; {known_rows(_MARK)}; COMMIT"
)
_CHECK_OWNER: Final = (
    # A division by zero ends the transaction if the row has another owner.
    f"SELECT 1 / count(*) FROM (SELECT 1 FROM {OWNERS} WHERE consumer = %s AND unit = %s"
    " AND epoch = %s AND attempt = %s FOR UPDATE) AS held"
)


class PostgresEffects:
    """A PostgreSQL database, by a call that opens a connection of psycopg."""

    def __init__(self, connect: Callable[[], Any], name: str, idle_in_transaction_s: float) -> None:
        self.name = name
        self._connect = connect
        self._idle_ms = max(1, round(idle_in_transaction_s * 1000))

    def open(self) -> PostgresSession:
        """Open a connection."""
        return self.session(self._connect())

    def session(self, connection: psycopg.Connection[Any]) -> PostgresSession:
        """Return the session of a new connection."""
        connection.autocommit = True  # Transactions are begun and ended by statements.
        return PostgresSession(connection, self._idle_ms)

    def is_outage(self, error: BaseException) -> bool:
        """True if the server or the connection failed."""
        import psycopg

        if not isinstance(error, psycopg.Error):
            return isinstance(error, OSError)
        if error.sqlstate is None:
            return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return error.sqlstate.startswith(_OUTAGES)

    def after_fork(self) -> None:
        """Nothing is inherited."""


class PostgresSession:
    """One connection to PostgreSQL."""

    def __init__(self, connection: psycopg.Connection[Any], idle_ms: int) -> None:
        self.connection = connection
        self._begin = f"BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"

    def create_tables(self) -> None:
        """Create the tables unless they exist. A user without the right to create them may use
        tables that another one has created."""
        ((exist,),) = self._run(_TABLES_EXIST)[0]
        if not exist:
            self._run(CREATE_TABLES)

    def take_over(self, owner: UnitOwner) -> StoredUnit:
        """Store an owner, and return what is known to it."""
        taken, highest, rows = self._run(_TAKE_OVER, owner.parameters())[1:4]
        return _stored_unit(taken, highest, rows)

    def begin(self) -> None:
        """Begin the transaction of a handler."""
        self._run(self._begin)
        for name in _REFUSED:
            setattr(self.connection, name, _refusal(name))

    def commit(self, owner: UnitOwner, rows: Sequence[EffectRow]) -> None:
        """Check the owner, write rows and commit, by one message."""
        import psycopg

        self._allow()
        if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
            raise TransactionRefused("end its transaction by COMMIT or ROLLBACK")
        statements = [_CHECK_OWNER]
        values: list[object] = [owner.consumer, owner.unit, owner.epoch, owner.attempt]
        for row in rows:
            key = (owner.consumer, row.unit, row.stream, row.block)
            if row.done is None:
                statements.append(
                    f"DELETE FROM {EFFECTS} WHERE consumer = %s AND unit = %s AND stream = %s"
                    " AND block = %s"
                )
                values += key
            else:
                statements.append(
                    f"INSERT INTO {EFFECTS} (consumer, unit, stream, block, done)"
                    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (consumer, unit, stream, block)"
                    " DO UPDATE SET done = excluded.done"
                )
                values += (*key, row.done)
        self._run("; ".join([*statements, "COMMIT"]), values)

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._allow()
        self._run("ROLLBACK")

    def read_again(self, owner: UnitOwner) -> StoredUnit:
        """Raise the attempt, and return what is known to the owner."""
        return _stored_unit(*self._run(_READ_AGAIN, owner.parameters())[:3])

    def close(self) -> None:
        """Close the connection."""
        self._allow()
        with contextlib.suppress(Exception):
            self.connection.close()

    def forget(self) -> None:
        """Do nothing: psycopg does not close connections of another process."""

    def _allow(self) -> None:
        """End the refusal of methods."""
        for name in _REFUSED:
            vars(self.connection).pop(name, None)

    def _run(
        self, statements: str, values: Mapping[str, object] | Sequence[object] = ()
    ) -> list[list[tuple[Any, ...]]]:
        """Send statements as one message, and return the rows of each that has rows."""
        import psycopg
        from psycopg.rows import tuple_row

        results = []
        with psycopg.ClientCursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.execute(statements.encode(), values or None)
            while True:
                if cursor.description is not None:
                    results.append(cursor.fetchall())
                if not cursor.nextset():
                    return results


def connector(dsn: str) -> tuple[Callable[[], Any], str]:
    """Return a call that connects to a URL or DSN, and the address without user and password.

    `ConfigError` if psycopg is not installed or the text is not valid. The text is not shown.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError:
        raise ConfigError(
            "effects in PostgreSQL need psycopg, which is not installed",
            "install it: pip install 'tailrace[postgres]'",
        ) from None
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ConfigError(
            "the address of the database of effects is not valid for PostgreSQL",
            "valid: postgresql://user:password@host:5432/shop, or host=… dbname=shop",
        ) from None
    defaults: dict[str, str | int] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        # A server that was cut off by the network is noticed, also while a reply is awaited.
        "keepalives_idle": SILENCE_S // 3,
        "keepalives_interval": SILENCE_S // 6,
        "keepalives_count": 4,
        "tcp_user_timeout": SILENCE_S * 1000,
        "application_name": "tailrace",
    }
    missing = {key: value for key, value in defaults.items() if key not in given}
    full = make_conninfo(dsn, **missing)
    host, port, database = (str(given.get(key, "")) for key in ("host", "port", "dbname"))
    name = f"postgresql://{host}{':' if port else ''}{port}/{database}"
    return lambda: psycopg.connect(full), name


def connected_name(connection: psycopg.Connection[Any]) -> str:
    """Return the address of a connection without user and password."""
    info = connection.info
    return f"postgresql://{info.host}:{info.port}/{info.dbname}"


def _stored_unit(
    taken: list[tuple[Any, ...]], highest: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]
) -> StoredUnit:
    ((epoch,),) = highest
    attempt = taken[0][0] if taken else None
    return StoredUnit(epoch or 0, attempt, [EffectRow(*row) for row in rows])


def _refusal(method: str) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise TransactionRefused(f"call {method}() of its connection")

    return refuse
