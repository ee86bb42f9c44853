"""A COMMIT that raises: callers get the outcome that is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tailrace.backend.contract import Change, TableKey, Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import BackendUnavailable, HubClosed, OutcomeUnknown
from tests.support.records import P0, P1, append, create, records, values

pytestmark = pytest.mark.part("log")


class _Connection:
    """A connection of SQLite whose next COMMITs fail, `before` or `after` they are applied."""

    def __init__(self, connection: apsw.Connection, failures: list[tuple[str, apsw.Error]]) -> None:
        self._connection = connection
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: Any) -> Any:
        if statement != "COMMIT" or not self._failures:
            return self._connection.execute(statement, *arguments)
        when, error = self._failures.pop(0)
        if when == "after":
            self._connection.execute(statement)
        raise error


def _io_error(code: int = apsw.SQLITE_IOERR_WRITE) -> apsw.IOError:
    error = apsw.IOError("disk I/O error")
    error.extendedresult = code  # type: ignore[attr-defined]
    return error


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    with closing(EmbeddedBackend.open(tmp_path, sync="none")) as opened:
        create(opened)
        append(opened, P0, b"before")
        yield opened


def _fail(backend: EmbeddedBackend, *failures: tuple[str, apsw.Error]) -> None:
    database = backend._database()
    database._writer = _Connection(database.writer, list(failures))  # type: ignore[assignment]


def test_a_failed_commit_raises_and_leaves_nothing(backend: EmbeddedBackend) -> None:
    _fail(backend, ("before", _io_error()))
    with pytest.raises(BackendUnavailable, match="nothing was written"):
        append(backend, P0, b"refused")
    assert values(backend, P0) == [b"before"]
    assert append(backend, P0, b"next").start == 1
    assert values(backend, P0) == [b"before", b"next"]


def test_a_commit_that_raised_but_was_stored_succeeds(backend: EmbeddedBackend) -> None:
    _fail(backend, ("after", _io_error()))
    landed = append(backend, P0, b"stored")
    assert (landed.start, landed.end) == (1, 2)
    assert values(backend, P0) == [b"before", b"stored"]


def test_an_outcome_that_cannot_be_determined_is_unknown(backend: EmbeddedBackend) -> None:
    _fail(backend, ("before", _io_error()), ("before", _io_error()))
    with pytest.raises(OutcomeUnknown, match="may or may not be stored"):
        append(backend, P0, b"unknown")
    assert append(backend, P0, b"next").start == 1
    assert values(backend, P0) == [b"before", b"next"]


def test_a_change_and_a_table_write_that_failed_leave_nothing(backend: EmbeddedBackend) -> None:
    _fail(backend, ("before", _io_error()), ("before", _io_error()))
    with pytest.raises(OutcomeUnknown):
        backend.store.commit(Change(writes={"a": b"1"}))
    _fail(backend, ("before", _io_error()))
    key = TableKey("t", b"k")
    with pytest.raises(BackendUnavailable, match="nothing was written"):
        backend.commit(Transaction(((P1, records(b"x")),), table={key: b"v"}))
    assert backend.store.get("a") is None
    assert backend.table.get(*key) is None
    assert values(backend, P1) == []


def test_a_commit_whose_sync_failed_stops_this_process_until_it_opens_the_hub_again(
    backend: EmbeddedBackend, tmp_path: Path
) -> None:
    _fail(backend, ("before", _io_error(apsw.SQLITE_IOERR_FSYNC)))
    with pytest.raises(BackendUnavailable):
        append(backend, P0, b"refused")
    with pytest.raises(HubClosed, match="failed sync"):
        append(backend, P0, b"refused too")
    with pytest.raises(HubClosed):
        backend.store.commit(Change(writes={"a": b"1"}))
    assert values(backend, P0) == [b"before"]
    with closing(EmbeddedBackend.open(tmp_path)) as again:
        append(again, P0, b"next")
        assert values(again, P0) == [b"before", b"next"]
    assert values(backend, P0) == [b"before", b"next"]
