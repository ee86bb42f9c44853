"""The format of messages on a connection between two processes, and its two ends.

A frame is a length (4 bytes, big-endian), then msgpack of [sender, message]. A frame that this
version cannot read is dropped: a newer version may have sent it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Final

import msgspec

from tailrace.group.protocol.messages import Message

FRAME_BYTES_MAX: Final = 4 << 20

_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 1 << 16
_READS_MAX: Final = 64
"""Reads of one connection in one poll: more than the kernel buffers, so nothing is left over."""

_log = logging.getLogger(__name__)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A message and the process that sent it."""

    sender: str
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(sender: str, message: Message) -> bytes | None:
    """Return the frame of a message; None if it is too long."""
    data = _encoder.encode(Frame(sender, message))
    return len(data).to_bytes(_LENGTH_BYTES) + data if len(data) <= FRAME_BYTES_MAX else None


class Outgoing:
    """A connection to a process, and the bytes that are not sent yet."""

    __slots__ = ("process", "socket", "waiting")

    def __init__(self, process: str, connected: socket.socket) -> None:
        self.process = process
        self.socket = connected
        self.waiting = bytearray()

    def ended(self) -> bool:
        """True if the other side has closed the connection. It never sends anything."""
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def write(self) -> None:
        """Write the bytes that the socket accepts. Raises `OSError` if the connection has ended."""
        with contextlib.suppress(BlockingIOError):
            while self.waiting:
                del self.waiting[: self.socket.send(self.waiting)]


class Incoming:
    """A connection from another process, which is known from its first message on."""

    __slots__ = ("buffer", "sender", "socket", "warned")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.sender: str | None = None
        self.buffer = bytearray()
        self.warned = False

    def read(self) -> bool:
        """Read the bytes that have arrived. False if the connection has ended."""
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

    def messages(self) -> list[Frame]:
        """Return the complete messages. Raises `ValueError` if a length is over the limit."""
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
                self._warn(error)
        del self.buffer[:at]
        return found

    def _warn(self, error: Exception) -> None:
        if not self.warned:
            self.warned = True
            _log.warning(
                "dropped a message from %s that this version cannot read; further such messages on"
                " this connection are dropped silently: %s",
                self.sender or "an unknown process",
                error,
            )
