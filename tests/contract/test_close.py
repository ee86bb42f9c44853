"""Every call of a closed backend raises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.backend.contract import Backend, Change, TableKey, Transaction
from tailrace.errors import HubClosed
from tests.support.records import CHUNK_BYTES, P0, TOPIC, append, create, records

USES: dict[str, Callable[[Backend], object]] = {
    "commit": lambda backend: backend.commit(Transaction(((P0, records(b"a")),))),
    "commit of a table": lambda b: b.commit(Transaction(table={TableKey("t", b"k"): b"v"})),
    "bounds": lambda backend: backend.log.bounds(P0),
    "bounds_of": lambda backend: backend.log.bounds_of(TOPIC),
    "read": lambda backend: backend.log.read(P0, 0, CHUNK_BYTES),
    "table.get": lambda backend: backend.table.get("t", b"k"),
    "table.scan": lambda backend: backend.table.scan("t"),
    "store.get": lambda backend: backend.store.get("k"),
    "store.scan": lambda backend: backend.store.scan(""),
    "store.commit": lambda backend: backend.store.commit(Change(writes={"k": b"v"})),
    "store.watch": lambda backend: backend.store.watch("", 0),
    "follower": lambda backend: backend.follower(),
    "hold": lambda backend: backend.hold("name", "owner"),
    "holder": lambda backend: backend.holder("name"),
    "beats": lambda backend: backend.beats("name"),
    "silent_s": lambda backend: backend.silent_s("name"),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_backend_refuses_every_use(backend: Backend, use: str) -> None:
    create(backend)
    append(backend, P0, b"a")
    backend.close()
    with pytest.raises(HubClosed):
        USES[use](backend)


def test_closing_again_does_nothing(backend: Backend) -> None:
    backend.close()
    backend.close()


def test_a_backend_has_a_name_for_people(backend: Backend) -> None:
    assert backend.name
    assert isinstance(backend.name, str)
