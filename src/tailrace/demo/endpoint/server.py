"""The HTTP endpoint of the demo, in its own process: another team's service, which fails.

It answers 503 for some customers until a time after their first request, and 422 for one customer
until it is fixed. It keeps the last `ce-sequence` of each customer, and has no second effect for a
request that is not above it. It answers some orders only when told. Files in its directory control
it.

It appends one line to its log for each request, before it answers: the time, what was received, the
status, and 1 if the request was recognised as one that it had received before. The audit of the act
judges by this log.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tailrace.demo.endpoint.orders import HELD, REFUSED, UNAVAILABLE
from tailrace.demo.workload import Order

DIRECTORY: Final = "endpoint"
UNAVAILABLE_S: Final = 5.0
"""Seconds for which the endpoint answers 503, from its first request of such a customer on."""

OK: Final = 200
UNAVAILABLE_STATUS: Final = 503
REFUSED_STATUS: Final = 422

_LOG: Final = "requests"
_PORT: Final = "port"
_FIXED: Final = "fixed"
_HOLDS: Final = "holds"
_RELEASED: Final = "released"
_HELD_S_MAX: Final = 60.0
_POLL_S: Final = 0.01


class Request(NamedTuple):
    """A request as the endpoint logged it. Times are comparable on one host.

    `again` is True if the endpoint recognised it as one that it had accepted before.
    """

    received_ns: int
    customer: str
    number: int
    id: str
    sequence: str
    epoch: int
    attempt: int
    status: int
    again: bool

    @property
    def accepted(self) -> bool:
        """True if the request had an effect."""
        return self.status == OK and not self.again


class EndpointFiles:
    """The files by which the demo and its endpoint know of each other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / DIRECTORY
        self.log = self._directory / _LOG

    def make(self) -> None:
        """Make the directory with an empty log."""
        self._directory.mkdir()
        self.log.touch()

    @property
    def port(self) -> int | None:
        """The port of the endpoint; None while it starts."""
        return int((self._directory / _PORT).read_text() or 0) if self._has(_PORT) else None

    def serve_at(self, port: int) -> None:
        """Make the port known."""
        new = self._directory / "port.new"
        new.write_text(str(port))
        new.rename(self._directory / _PORT)

    @property
    def fixed(self) -> bool:
        """True if the endpoint accepts the orders of every customer."""
        return self._has(_FIXED)

    def fix(self) -> None:
        """Have the endpoint accept the orders of every customer."""
        (self._directory / _FIXED).touch()

    def holds(self, number: int) -> bool:
        """True if the endpoint has received the `number`-th order of the customer that it answers
        only when told."""
        return self._has(f"{_HOLDS}-{number}")

    def hold(self, number: int) -> None:
        """Wait until the order may be answered. Called by the endpoint."""
        (self._directory / f"{_HOLDS}-{number}").touch()
        deadline = time.monotonic() + _HELD_S_MAX
        while time.monotonic() < deadline:
            if self._has(_RELEASED) or self._has(f"{_RELEASED}-{number}"):
                break
            time.sleep(_POLL_S)

    def release(self, number: int) -> None:
        """Have the endpoint answer the `number`-th order of that customer."""
        (self._directory / f"{_RELEASED}-{number}").touch()

    def release_all(self) -> None:
        """Have the endpoint answer every order at once."""
        (self._directory / _RELEASED).touch()

    def requests(self) -> Iterator[Request]:
        """Yield every request that the endpoint logged, in order."""
        for line in self.log.read_text().split("\n")[:-1]:
            at, customer, number, id, sequence, epoch, attempt, status, again = line.split(" ")
            yield Request(
                *(int(at), customer, int(number), id, sequence),
                *(int(epoch), int(attempt), int(status), again == "1"),
            )

    def accepted(self) -> int:
        """Return the number of requests that had an effect."""
        return self.log.read_text().count(f" {OK} 0\n")

    def _has(self, name: str) -> bool:
        return (self._directory / name).exists()


class _Receiver:
    """What the endpoint does with an order. Its log is written in the order of its effects."""

    def __init__(self, files: EndpointFiles, held_from: int) -> None:
        self._files = files
        self._held_from = held_from
        self._log = os.open(files.log, os.O_WRONLY | os.O_APPEND)
        self._mutex = threading.Lock()
        self._last: dict[str, str] = {}
        self._unavailable_until = 0.0

    def receive(self, order: Order, headers: dict[str, str]) -> int:
        """Have the effect of a request, log it, and return the status of the answer."""
        sequence = headers["ce-sequence"]
        if order.customer == HELD and order.number >= self._held_from:
            self._files.hold(order.number)
        with self._mutex:
            again = sequence <= self._last.get(order.customer, "")
            status = OK if again else self._status(order.customer)
            if status == OK and not again:
                self._last[order.customer] = sequence
            line = (
                f"{time.monotonic_ns()} {order.customer} {order.number} {headers['ce-id']} "
                f"{sequence} {headers['ce-epoch']} {headers['ce-attempt']} {status} {int(again)}\n"
            )
            os.write(self._log, line.encode())
        return status

    def _status(self, customer: str) -> int:
        if customer == REFUSED and not self._files.fixed:
            return REFUSED_STATUS
        if customer in UNAVAILABLE:
            now = time.monotonic()
            self._unavailable_until = self._unavailable_until or now + UNAVAILABLE_S
            return UNAVAILABLE_STATUS if now < self._unavailable_until else OK
        return OK


_TEXTS: Final = {
    OK: b"",
    REFUSED_STATUS: b"unknown country code",
    UNAVAILABLE_STATUS: b"upstream inventory down",
}


def serve(directory: Path, held_from: int) -> None:
    """Serve until the process is ended. The orders of `HELD` are held from a number on."""
    files = EndpointFiles(directory)
    receiver = _Receiver(files, held_from)
    decode = msgspec.json.Decoder(Order).decode

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            order = decode(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.receive(order, headers)
            self.send_response(status)
            self.send_header("content-length", str(len(_TEXTS[status])))
            self.end_headers()
            self.wfile.write(_TEXTS[status])

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        files.serve_at(server.server_port)
        server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
