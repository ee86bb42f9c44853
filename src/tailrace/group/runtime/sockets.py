"""Messages between the processes of a host, over Unix sockets in a shared directory.

Each process listens at `PROCESS.sock`, and connects to the socket of another process when it has a
message for it. A connection carries messages one way, from the process that opened it, so two
processes may connect to each other at the same time. Each side sees the end of the connection when
the other process dies.

A slow or stopped peer blocks nobody: unsent bytes are kept up to a limit. Beyond the limit the
connection is closed and its unsent messages are dropped.

The address of a socket is limited to 107 bytes, and paths of directories may be longer; so sockets
are addressed through an open descriptor of their directory.
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

from tailrace.backend.forking import NO_FORK, reset_after_fork
from tailrace.group.protocol.messages import Message
from tailrace.group.runtime.transport import Receiver
from tailrace.group.runtime.wire import Incoming, Outgoing, encode
from tailrace.log.sharing import make_directory, share

OUTGOING_BYTES_MAX: Final = 8 << 20
"""The largest number of unsent bytes for a peer before its connection is closed."""
INCOMING_MAX: Final = 1024
"""The largest number of open incoming connections; further ones are refused."""

_SUFFIX: Final = ".sock"
_BACKLOG: Final = 128
_NO_DESCRIPTOR_S: Final = 0.02

_log = logging.getLogger(__name__)


class Sockets:
    """A `Transport` over Unix sockets. It is closed in a forked child."""

    def __init__(self, directory: Path, process: str, receiver: Receiver) -> None:
        self._process = process
        self._receiver = receiver
        self._mutex = threading.Lock()
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: set[Incoming] = set()
        make_directory(directory)
        with NO_FORK:
            self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector = selectors.DefaultSelector()
            self._listener = _socket()
            self._closed = False
            reset_after_fork(self)
        try:
            self._listener.bind(self._address(process))
            share(directory / (process + _SUFFIX))
            self._listener.listen(_BACKLOG)
        except BaseException:
            self._release()
            raise
        self._register(self._woken, self._clear_wake)
        self._register(self._listener, self._accept)

    def send(self, process: str, message: Message) -> None:
        """Write a message to the socket, or keep it until the socket accepts it."""
        if process == self._process:
            self._receiver.received(process, message)
            return
        data = encode(self._process, message)
        if data is None:
            _log.error("dropped a %s message: it is too long to be sent", type(message).__name__)
            return
        peer = self._outgoing.get(process) or self._connect(process)
        if peer is None:
            return
        idle = not peer.waiting
        peer.waiting += data
        if idle:
            self._write(peer)
        elif len(peer.waiting) > OUTGOING_BYTES_MAX:
            _log.warning("process %s reads no messages: dropped its unsent messages", process)
            self._drop_outgoing(peer)

    def poll(self, timeout_s: float | None) -> None:
        """Read from and write to every socket that is ready."""
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def wake(self) -> None:
        """Make `poll` return."""
        with self._mutex:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def flush(self, timeout_s: float) -> None:
        """Write until every message was sent, for at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while any(peer.waiting for peer in self._outgoing.values()):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            self.poll(left_s)

    def close(self) -> None:
        """Remove the socket, and close every connection."""
        if not self._closed:
            with contextlib.suppress(OSError):
                os.unlink(self._process + _SUFFIX, dir_fd=self._directory)
            self._release()

    def after_fork(self) -> None:
        """Close everything in a forked child: an open socket would look like the living parent."""
        self._mutex = threading.Lock()
        self._release()

    def _release(self) -> None:
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

    def _clear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)

    def _connect(self, process: str) -> Outgoing | None:
        with NO_FORK:
            connecting = _socket()
            try:
                connecting.connect(self._address(process))
            except OSError as error:
                connecting.close()
                # BlockingIOError: the peer is alive and accepts too slowly.
                if not isinstance(error, BlockingIOError):
                    self._receiver.disconnected(process)
                return None
            peer = self._outgoing[process] = Outgoing(process, connecting)
        self._register(connecting, partial(self._ready, peer))
        return peer

    def _ready(self, peer: Outgoing) -> None:
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
        self._receiver.disconnected(peer.process)

    def _accept(self) -> None:
        """Accept every waiting connection, and read the messages that have arrived on it."""
        while True:
            with NO_FORK:
                try:
                    accepted, _ = self._listener.accept()
                except BlockingIOError:
                    return
                except OSError as error:
                    _log.warning("could not accept a connection: %s", error)
                    # The connection still waits, and would be found again at once.
                    time.sleep(_NO_DESCRIPTOR_S)
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
        is_open = incoming.read()
        try:
            for frame in incoming.messages():
                incoming.sender = frame.sender
                self._receiver.received(frame.sender, frame.message)
        except ValueError as error:
            _log.warning("closed a connection after an invalid frame: %s", error)
            is_open = False
        if not is_open:
            self._incoming.remove(incoming)
            self._selector.unregister(incoming.socket)
            incoming.socket.close()
            if incoming.sender is not None:
                self._receiver.disconnected(incoming.sender)


def processes_at(directory: Path) -> list[str]:
    """Return the processes that have a socket in a directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def remove_socket(directory: Path, process: str) -> None:
    """Remove the socket of a dead process."""
    (directory / (process + _SUFFIX)).unlink(missing_ok=True)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made
