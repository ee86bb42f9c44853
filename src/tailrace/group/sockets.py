"""Messages between the processes of a host, by Unix sockets in a directory that all of them know.

Each process listens at `PROCESS.sock`, and connects to those of others when it has something to
say. A connection carries messages one way, from the process that made it, so two that connect to
each other at once need no rule. Either side sees the end of it when the other dies.

Nothing waits for a slow or stopped peer: what it does not take is kept up to a bound, beyond which
the connection is dropped with all that was on it.

A socket's address has room for 107 bytes, and directories may be deeper; so a socket is named
through an open descriptor of its directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tailrace.backend.embedded.forking import NO_FORK, begin_anew_after_fork
from tailrace.group.messages import Message
from tailrace.group.transport import Receiver
from tailrace.group.wire import Incoming, Outgoing, encode

OUTGOING_BYTES_MAX: Final = 8 << 20
"""What is kept for a peer that does not take it, before the connection is dropped."""
INCOMING_MAX: Final = 1024
"""How many connections of others are open at a time; further ones are refused."""

_SUFFIX: Final = ".sock"
_BACKLOG: Final = 128
_NO_DESCRIPTOR_S: Final = 0.02

_log = logging.getLogger(__name__)


class Sockets:
    """See `tailrace.group.transport.Transport`. In a forked child it is closed."""

    def __init__(self, directory: Path, process: str, receiver: Receiver) -> None:
        self._process = process
        self._receiver = receiver
        self._mutex = threading.Lock()
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: set[Incoming] = set()
        directory.mkdir(exist_ok=True)
        with NO_FORK:
            self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector = selectors.DefaultSelector()
            self._listener = _socket()
            self._closed = False
            begin_anew_after_fork(self)
        try:
            self._listener.bind(self._address(process))
            self._listener.listen(_BACKLOG)
        except BaseException:
            self._let_go()
            raise
        self._register(self._woken, self._take_wake)
        self._register(self._listener, self._accept)

    def send(self, process: str, message: Message) -> None:
        """Give it to the kernel, or keep it until the kernel takes it; see the contract."""
        if process == self._process:
            self._receiver.received(process, message)
            return
        data = encode(self._process, message)
        if data is None:
            _log.error("dropped a %s that is too long to be sent", type(message).__name__)
            return
        peer = self._outgoing.get(process) or self._connect(process)
        if peer is None:
            return
        idle = not peer.waiting
        peer.waiting += data
        if idle:
            self._write(peer)
        elif len(peer.waiting) > OUTGOING_BYTES_MAX:
            _log.warning("process %s takes no messages: dropped what waited for it", process)
            self._drop_outgoing(peer)

    def poll(self, timeout_s: float | None) -> None:
        """Read and write what is ready; see the contract."""
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def wake(self) -> None:
        """End a `poll`."""
        with self._mutex:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def flush(self, timeout_s: float) -> None:
        """Write until all is taken, at most so long."""
        deadline = time.monotonic() + timeout_s
        while any(peer.waiting for peer in self._outgoing.values()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            self.poll(left_s)

    def close(self) -> None:
        """Remove the socket, and close everything."""
        if not self._closed:
            with contextlib.suppress(OSError):
                os.unlink(self._process + _SUFFIX, dir_fd=self._directory)
            self._let_go()

    def after_fork(self) -> None:
        """In a forked child: keep nothing open that others would take for a sign of the parent."""
        self._mutex = threading.Lock()
        self._let_go()

    def _let_go(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            self._selector.close()
            for peer in self._outgoing.values():
                peer.socket.close()
            for incoming in self._incoming:
                incoming.socket.close()
            self._listener.close()
            os.close(self._woken)
            os.close(self._directory)
            self._woken = -1
            self._outgoing.clear()
            self._incoming.clear()

    def _address(self, process: str) -> str:
        return f"/proc/self/fd/{self._directory}/{process}{_SUFFIX}"

    def _register(self, ready: int | socket.socket, handle: Callable[[], None]) -> None:
        self._selector.register(ready, selectors.EVENT_READ, handle)

    def _take_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)

    def _connect(self, process: str) -> Outgoing | None:
        with NO_FORK:
            connecting = _socket()
            try:
                connecting.connect(self._address(process))
            except OSError as error:
                connecting.close()
                if not isinstance(error, BlockingIOError):  # that is one that accepts too slowly
                    self._receiver.parted(process)
                return None
            peer = self._outgoing[process] = Outgoing(process, connecting)
        self._register(connecting, partial(self._attend, peer))
        return peer

    def _attend(self, peer: Outgoing) -> None:
        if peer.ended():
            self._drop_outgoing(peer)
        else:
            self._write(peer)

    def _write(self, peer: Outgoing) -> None:
        try:
            peer.write()
        except OSError:
            self._drop_outgoing(peer)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.waiting else 0)
        key = self._selector.get_key(peer.socket)
        if key.events != events:
            self._selector.modify(peer.socket, events, key.data)

    def _drop_outgoing(self, peer: Outgoing) -> None:
        del self._outgoing[peer.process]
        self._selector.unregister(peer.socket)
        peer.socket.close()
        self._receiver.parted(peer.process)

    def _accept(self) -> None:
        """Take in all who connect, and what they have said already."""
        while True:
            with NO_FORK:
                try:
                    accepted, _ = self._listener.accept()
                except BlockingIOError:
                    return
                except OSError as error:
                    _log.warning("could not accept a connection: %s", error)
                    time.sleep(_NO_DESCRIPTOR_S)  # it stays there, and would be met at once again
                    return
                if len(self._incoming) >= INCOMING_MAX:
                    accepted.close()
                    continue
                accepted.setblocking(False)
                incoming = Incoming(accepted)
                self._incoming.add(incoming)
            self._register(accepted, partial(self._read, incoming))
            self._read(incoming)

    def _read(self, incoming: Incoming) -> None:
        goes_on = incoming.read()
        try:
            for frame in incoming.messages():
                incoming.sender = frame.sender
                self._receiver.received(frame.sender, frame.message)
        except ValueError as error:
            _log.warning("dropped a connection that brought %s", error)
            goes_on = False
        if not goes_on:
            self._incoming.remove(incoming)
            self._selector.unregister(incoming.socket)
            incoming.socket.close()
            if incoming.sender is not None:
                self._receiver.parted(incoming.sender)


def processes_at(directory: Path) -> list[str]:
    """The processes that have left a socket in a directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def remove_socket(directory: Path, process: str) -> None:
    """Remove the socket of a process that is dead."""
    (directory / (process + _SUFFIX)).unlink(missing_ok=True)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made
