"""A relay in front of a PostgreSQL server that loses one message, or the answer to it."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial

from tests.support.waiting import in_thread

_READ_BYTES = 1 << 20
_COMMIT = b"; COMMIT\0"
"""The end of a message that commits effects."""


class Cut(Enum):
    """What becomes of the next commit. Its client always loses the connection."""

    NOTHING = "it passes"
    ANSWER = "the server gets it, the answer is lost"
    MESSAGE = "the server does not get it"
    LATE = "the server gets it when `deliver` is called"


class CutNetwork:
    """A relay to a port of this host. `cut` is what becomes of the next commit. While `is_up` is
    False, new connections are closed at once."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = Cut.NOTHING
        self.is_up = True
        self._late: tuple[socket.socket, bytes] | None = None
        in_thread(self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)  # Ends `accept`, which `close` would not.
        self._listener.close()

    def deliver(self) -> bytes:
        """Deliver the late commit, and return the answer of the server, which ends the session."""
        assert self._late is not None
        server, message = self._late
        with server:
            server.sendall(message)
            server.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: server.recv(_READ_BYTES), b""))

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_up:
                    in_thread(partial(self._relay, client))
                else:
                    client.close()

    def _relay(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._to))
        with client, suppress(OSError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for side in ready:
                    data = side.recv(_READ_BYTES)
                    if data.endswith(_COMMIT) and self.cut is not Cut.NOTHING:
                        return self._lose(server, data)
                    if not data:
                        return server.close()
                    (server if side is client else client).sendall(data)

    def _lose(self, server: socket.socket, message: bytes) -> None:
        cut, self.cut = self.cut, Cut.NOTHING
        if cut is Cut.LATE:
            self._late = server, message
            return
        with server:
            if cut is Cut.ANSWER:
                server.sendall(message)
                server.recv(_READ_BYTES)


@contextmanager
def cut_network(port: int) -> Iterator[CutNetwork]:
    """A relay to a port, closed afterwards."""
    network = CutNetwork(port)
    try:
        yield network
    finally:
        network.close()
