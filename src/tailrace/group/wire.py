"""What goes over a connection between two processes, and the two ends of one.

For each message: its length (4 bytes, big-endian), then msgpack of [sender, message]. A frame that
this version cannot read is dropped, for a newer one may have sent it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Final

import msgspec

from tailrace.group.messages import Message

FRAME_BYTES_MAX: Final = 4 << 20

_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 1 << 16
_READS_MAX: Final = 64
"""Of one connection in one poll: more than the kernel holds, so all that was there is read."""

_log = logging.getLogger(__name__)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A message, and the process that sent it."""

    sender: str
    message: Message


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(sender: str, message: Message) -> bytes | None:
    """A message as it goes over a connection; None when it is too long for that."""
    data = _encoder.encode(Frame(sender, message))
    return len(data).to_bytes(_LENGTH_BYTES) + data if len(data) <= FRAME_BYTES_MAX else None


class Outgoing:
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


class Incoming:
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

    def messages(self) -> list[Frame]:
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
