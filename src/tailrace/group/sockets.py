"""Messages between the processes of a host, by Unix sockets in a directory that all of them know.

Each process listens at `PROCESS.sock`, and connects to those of others when it has something to
say. A connection carries messages one way, from the process that made it, so two that connect to
each other at once need no rule. Either side sees the end of it when the other dies.

On the wire, for each message: its length (4 bytes, big-endian), then msgpack of [sender, message].
A frame that this version cannot read is dropped, for a newer one may have sent it.

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

import msgspec

from tailrace.backend.embedded.forking import NO_FORK, begin_anew_after_fork
from tailrace.group.messages import Message
from tailrace.group.transport import Receiver

FRAME_BYTES_MAX: Final = 4 << 20
OUTGOING_BYTES_MAX: Final = 8 << 20
"""What is kept for a peer that does not take it, before the connection is dropped."""
INCOMING_MAX: Final = 1024
"""How many connections of others are open at a time; further ones are refused."""

_SUFFIX: Final = ".sock"
_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 1 << 16
_READS_MAX: Final = 64
"""Of one connection in one poll: more than the kernel holds, so all that was there is read."""
_BACKLOG: Final = 128
_NO_DESCRIPTOR_S: Final = 0.02

_log = logging.getLogger(__name__)


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    sender: str
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Frame)


class _Outgoing:
    """A connection to a process, and what it has not yet taken."""

    __slots__ = ("process", "socket", "waiting")

    def __init__(self, process: str, connected: socket.socket) -> None:
        self.process = process
        self.socket = connected
        self.waiting = bytearray()

    def ended(self) -> bool:
        """Whether the other side is gone: nothing else can be read, for nobody writes to it."""
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def write(self) -> None:
        """Give the kernel what it takes. `OSError` when the connection is over."""
        with contextlib.suppress(BlockingIOError):
            while self.waiting:
                del self.waiting[: self.socket.send(self.waiting)]


class _Incoming:
    """A connection of another process; who that is, its first message says."""

    __slots__ = ("buffer", "complained", "sender", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.sender: str | None = None
        self.buffer = bytearray()
        self.complained = False

    def read(self) -> bool:
        """Take what is there; False when nothing will come any more."""
        try:
            for _ in range(_READS_MAX):
                chunk = self.socket.recv(_READ_BYTES)
                if not chunk:
                    return False
                self.buffer += chunk
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def messages(self) -> list[_Frame]:
        """The messages that are complete. `ValueError` for what cannot be a frame at all."""
        found = []
        at = 0
        while len(self.buffer) >= at + _LENGTH_BYTES:
            start = at + _LENGTH_BYTES
            length = int.from_bytes(self.buffer[at:start])
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length:,} bytes, over {FRAME_BYTES_MAX:,}")
            if len(self.buffer) < start + length:
                break
            at = start + length
            try:
                found.append(_decoder.decode(memoryview(self.buffer)[start:at]))
            except msgspec.DecodeError as error:
                self._complain(error)
        del self.buffer[:at]
        return found

    def _complain(self, error: Exception) -> None:
        if not self.complained:
            self.complained = True
            _log.warning(
                "dropped a message from %s that this version cannot read, and all such that follow"
                " on this connection: %s",
                self.sender or "an unknown process",
                error,
            )


class Sockets:
    """See `tailrace.group.transport.Transport`. In a forked child it is closed."""

    def __init__(self, directory: Path, process: str, receiver: Receiver) -> None:
        self._process = process
        self._receiver = receiver
        self._mutex = threading.Lock()
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: set[_Incoming] = set()
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
        data = _encoder.encode(_Frame(self._process, message))
        if len(data) > FRAME_BYTES_MAX:
            name = type(message).__name__
            _log.error("dropped a %s of %s bytes: too long to be sent", name, f"{len(data):,}")
            return
        peer = self._outgoing.get(process) or self._connect(process)
        if peer is None:
            return
        idle = not peer.waiting
        peer.waiting += len(data).to_bytes(_LENGTH_BYTES) + data
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

    def _connect(self, process: str) -> _Outgoing | None:
        with NO_FORK:
            connecting = _socket()
            try:
                connecting.connect(self._address(process))
            except OSError as error:
                connecting.close()
                if not isinstance(error, BlockingIOError):  # that is one that accepts too slowly
                    self._receiver.parted(process)
                return None
            peer = self._outgoing[process] = _Outgoing(process, connecting)
        self._register(connecting, partial(self._attend, peer))
        return peer

    def _attend(self, peer: _Outgoing) -> None:
        if peer.ended():
            self._drop_outgoing(peer)
        else:
            self._write(peer)

    def _write(self, peer: _Outgoing) -> None:
        try:
            peer.write()
        except OSError:
            self._drop_outgoing(peer)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.waiting else 0)
        key = self._selector.get_key(peer.socket)
        if key.events != events:
            self._selector.modify(peer.socket, events, key.data)

    def _drop_outgoing(self, peer: _Outgoing) -> None:
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
                incoming = _Incoming(accepted)
                self._incoming.add(incoming)
            self._register(accepted, partial(self._read, incoming))
            self._read(incoming)

    def _read(self, incoming: _Incoming) -> None:
        goes_on = incoming.read()
        try:
            for frame in incoming.messages():
                incoming.sender = frame.sender
                self._receiver.received(*msgspec.structs.astuple(frame))
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
