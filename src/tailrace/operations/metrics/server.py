"""A server of metrics and health: ``/metrics``, ``/healthz`` and ``/readyz``.

It answers GET and HEAD without a token, and shows names, counts and durations, but no keys and no
payloads.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final, Protocol

from tailrace.backend.pickling import Unpicklable
from tailrace.closing import Closing
from tailrace.errors import ConfigError
from tailrace.reporting.address import Address
from tailrace.reporting.exposition import CONTENT_TYPE, exposition
from tailrace.reporting.sample import Sample

CONNECTIONS_MAX: Final = 8
"""The number of connections at a time. Further ones are closed at once."""

PATIENCE_S: Final = 5.0
"""How long a client may take for its request, and for reading the answer."""

_POLL_S: Final = 0.25
"""The longest time until the server sees that it is closed."""

_PATHS: Final = "valid: /metrics, /healthz, /readyz\n"

_log: Final = logging.getLogger("tailrace.metrics")


class MetricsSource(Protocol):
    """What a server asks for its answers. Any thread may call it."""

    def samples(self) -> list[Sample]:
        """Return the samples of now, each series once."""

    def unready(self) -> str | None:
        """Return why something does not work yet, in a few words; None if everything works."""


class NothingOpen:
    """What is reported before the hub is open."""

    def samples(self) -> list[Sample]:
        """Return nothing."""
        return []

    def unready(self) -> str | None:
        """Return that it starts."""
        return "starting"


class MetricsServer(Unpicklable, Closing):
    """A server of metrics and health, in threads of its own.

    Leave the `with` block, or call `close`, to stop it.
    """

    def __init__(self, address: Address) -> None:
        self._server = _Server(address)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="tailrace metrics", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url}>"

    @property
    def address(self) -> Address:
        """Where it listens, with the port that it has got."""
        return self._server.address

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        return f"http://{self.address}/metrics"

    def show(self, source: MetricsSource) -> None:
        """Answer from this source from now on. Before, nothing is ready."""
        self._server.source = source

    def close(self) -> None:
        """Stop listening, and wait for the answers under way. Closing again does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.await_answers()


class _Server(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, address: Address) -> None:
        self.source: MetricsSource = NothingOpen()
        self._free = threading.Semaphore(CONNECTIONS_MAX)
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            self.address_family = found[0][0]
            super().__init__(address, _Handler)
        except OSError as error:
            raise _cannot_listen(address, error) from error
        self.address = Address(address.host, self.socket.getsockname()[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection of %s ended early", client_address, exc_info=True)

    def await_answers(self) -> None:
        """Wait for the threads of the connections, which end within their patience."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        taken = 0
        while taken < CONNECTIONS_MAX and self._free.acquire(
            timeout=max(0.0, deadline - time.monotonic())
        ):
            taken += 1
        if taken:
            self._free.release(taken)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_S
    server_version, sys_version = "tailrace", ""

    def do_GET(self) -> None:
        source = self.server.source
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer_metrics(source)
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, "ok\n")
        elif path == "/readyz":
            reason = source.unready()
            ready = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(ready, "ready\n" if reason is None else f"{reason}\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, _PATHS)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer_metrics(self, source: MetricsSource) -> None:
        try:
            text = exposition(source.samples())
        except Exception:
            _log.exception("the metrics could not be read")
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the log has the error\n")
        else:
            self._answer(HTTPStatus.OK, text, CONTENT_TYPE)

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        _log.debug(format, *arguments)


def _cannot_listen(address: Address, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"metrics cannot be served at {address}: another process uses port {address.port}",
            "choose another one: --metrics PORT; port 0 is any free one",
            f"find that process: ss -ltnp 'sport = :{address.port}'",
        )
    return ConfigError(
        f"metrics cannot be served at {address}: {error.strerror or error}",
        "valid: an address of this machine, such as 127.0.0.1:9464, and a port above 1023",
    )
