"""An endpoint on a local port that counts the calls that are under way at it.

A call is a connection: the client sends its number on a line, and the endpoint answers after a
while. The call has ended when it is answered, or when the client has closed the connection, also by
its death.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from typing import Self


class CountingEndpoint:
    """An endpoint that answers each call after `takes_s`. Leave its `with` block to end it."""

    def __init__(self, takes_s: float) -> None:
        self.now = self.most = self.cut_off = 0
        self.answered: Counter[int] = Counter()
        self._takes_s = takes_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self._server, self.port = starting.result(10)
        return self

    def __exit__(self, *raised: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _start(self) -> tuple[asyncio.Server, int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        number = int(await reader.readline() or b"-1")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), self._takes_s)
            self.now -= 1
            self.cut_off += 1
            writer.close()
            return
        self.answered[number] += 1
        self.now -= 1
        writer.write(b"ok\n")
        writer.close()


def call(port: int, number: int) -> None:
    """Call the endpoint, and wait for its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"%d\n" % number)
        if connection.recv(16) != b"ok\n":
            raise ConnectionError("the endpoint has not answered")
