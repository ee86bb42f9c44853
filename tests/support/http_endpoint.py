"""A local HTTP server that answers as a test says, also badly, and keeps a log of its requests."""

from __future__ import annotations

import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeAlias

_READ_S = 30.0


class Posted(NamedTuple):
    """A request as it was received. The names of headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """The key of the message; empty if it has none."""
        return self.headers.get("ce-partitionkey", "")

    @property
    def sequence(self) -> str:
        """The text that rises with the messages of a key."""
        return self.headers["ce-sequence"]


class Connection:
    """A connection to a client, to answer on."""

    def __init__(self, peer: socket.socket, closing: threading.Event) -> None:
        self.peer = peer
        self.closing = closing
        """Set when the server ends."""
        self.open = True

    def send(self, data: bytes) -> None:
        """Send bytes. A client that is gone is none of the server's business."""
        with suppress(OSError):
            self.peer.sendall(data)

    def close(self) -> None:
        """Close the connection after this answer."""
        self.open = False

    def reset(self) -> None:
        """Close the connection with a reset."""
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.peer.detach())  # at once: a shutdown before would be an orderly end
        self.close()


Answer: TypeAlias = Callable[[Connection], None]


def answers(status: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer with a status, a body and headers, whose names have underscores."""
    lines = [f"HTTP/1.1 {status} Reason"]
    if status not in (204, 304):
        lines.append(f"content-length: {len(body)}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda connection: connection.send(data)


OK: Answer = answers(200)


def resets(connection: Connection) -> None:
    """Reset the connection instead of an answer."""
    connection.reset()


def closes(connection: Connection) -> None:
    """Close the connection instead of an answer."""
    connection.close()


def half_a_body(connection: Connection) -> None:
    """Promise more of a body than is sent."""
    connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf")
    connection.close()


def no_http(connection: Connection) -> None:
    """Answer with another protocol."""
    connection.send(b"220 mail.example ESMTP\r\n")
    connection.close()


def silent(connection: Connection) -> None:
    """Answer nothing, until the server ends or the client goes."""
    _await_end(connection)


def endless(connection: Connection) -> None:
    """Answer with a status, and with a body that never ends, a byte at a time."""
    connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while not connection.closing.wait(0.02):
        try:
            connection.peer.sendall(b"1\r\nx\r\n")
        except OSError:
            break
    connection.close()


def huge(connection: Connection) -> None:
    """Answer with an error and a body that is larger than anybody reads."""
    connection.send(b"HTTP/1.1 500 Error\r\ntransfer-encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"y" * 0x10000 + b"\r\n"
    while not connection.closing.is_set():
        try:
            connection.peer.sendall(chunk)
        except OSError:
            break
    connection.close()


class HttpEndpoint:
    """The server. `answer` says for each request, and the number of those before it with the same
    position, what becomes of it."""

    def __init__(
        self,
        answer: Callable[[Posted, int], Answer] = lambda posted, before: OK,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: list[Posted] = []
        """All requests, in the order in which they arrived."""
        self.answer = answer
        self.in_progress = self.most = 0
        """The number of requests that are being answered, now and at most."""
        self._connections: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._closing = threading.Event()
        endpoint = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    endpoint._serve(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 256

            def get_request(self) -> tuple[Any, Any]:
                peer, address = super().get_request()
                if tls is not None:
                    peer.settimeout(_READ_S)
                    peer = tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
                return peer, address

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' * (tls is not None)}://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def _serve(self, handler: socketserver.StreamRequestHandler) -> None:
        connection = Connection(handler.connection, self._closing)
        with self._mutex:
            self._connections.add(handler.connection)
        handler.connection.settimeout(_READ_S)
        while connection.open and (posted := _read(handler)) is not None:
            with self._mutex:
                id = posted.headers.get("ce-id")
                before = sum(each.headers.get("ce-id") == id for each in self.requests)
                self.requests.append(posted)
                self.in_progress += 1
                self.most = max(self.most, self.in_progress)
            try:
                self.answer(posted, before)(connection)
            finally:
                with self._mutex:
                    self.in_progress -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._closing.set()
        self._server.shutdown()
        with self._mutex:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()


def _read(handler: socketserver.StreamRequestHandler) -> Posted | None:
    line = handler.rfile.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while header := handler.rfile.readline().rstrip(b"\r\n"):
        name, _, value = header.partition(b":")
        headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
    body = handler.rfile.read(int(headers.get("content-length", "0")))
    return Posted(line.split()[1].decode(), headers, body)


def _await_end(connection: Connection) -> None:
    """Wait until the client closes the connection, or the server ends."""
    connection.peer.settimeout(None)
    with suppress(OSError):
        connection.peer.recv(1)
    connection.close()
