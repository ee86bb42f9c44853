"""Processes that consume a topic for the bench, and write down when they got what."""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import tailrace
from bench.machine import cpu_seconds

TOPIC = "orders"
GROUP = "billing"
DEADLINE_S = 120.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.consuming", "tailrace.backend.embedded", "tailrace.hub"])
_LINE = struct.Struct("<QQI")
_SENT = struct.Struct("<Q")


class Got(NamedTuple):
    """A message: when it was pushed, when it was handed out, and of which stream it is."""

    pushed_ns: int
    got_ns: int
    stream: int

    @property
    def latency_s(self) -> float:
        """From just before the push until the handler had it."""
        return (self.got_ns - self.pushed_ns) / 1e9


class Process:
    """A process of the bench, which has told that it is ready."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        self.ended = False
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.wait()

    def wait(self) -> Any:
        """The next thing that it tells."""
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError("a process of the bench does not answer")
        return self._pipe.recv()

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """What it took of the processor so far."""
        return cpu_seconds(self.pid)

    def end(self, by: int = signal.SIGTERM) -> None:
        """Tell it to leave in order, or kill it."""
        if not self.ended:
            self.ended = True
            os.kill(self.pid, by)
            self._process.join(DEADLINE_S)


class _Receiver(Process):
    """A process that gets messages."""

    file: Path

    def got(self) -> Iterator[Got]:
        """What it got so far."""
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = len(data) // _LINE.size * _LINE.size
        return map(Got._make, _LINE.iter_unpack(data[:whole]))


class Consumer(_Receiver):
    """A process with one consumer of the group."""

    def __init__(self, directory: Path, number: int) -> None:
        self.file = directory / f"got-{number}"
        super().__init__(_consume, directory / "hub", self.file)


class Piped(_Receiver):
    """A process that gets its messages through a pipe."""

    def __init__(self, directory: Path, number: int) -> None:
        self.file = directory / f"got-{number}"
        super().__init__(_receive, self.file)

    def send(self, value: bytes) -> None:
        """Send it a message."""
        self._pipe.send_bytes(value)


def stamped() -> bytes:
    """The value of a message that is pushed now."""
    return _SENT.pack(time.monotonic_ns())


def idle(pipe: Connection, directory: Path, groups: list[str]) -> None:
    """A process that has a consumer, in a thread of its own, for each of these."""
    with tailrace.open(directory) as hub:
        topic = hub.topic(TOPIC, bytes)
        consumers = [topic.tail(group=group).start(_nothing) for group in groups]
        pipe.send("ready")
        signal.sigwait([signal.SIGTERM])
        del consumers
        os._exit(0)


def _nothing(_: object) -> None:
    """Do nothing with a delivery."""


class _Lines:
    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, value: bytes, stream: int) -> None:
        """That a message was got now."""
        [pushed_ns] = _SENT.unpack(value)
        os.write(self._file, _LINE.pack(pushed_ns, time.monotonic_ns(), stream))


def _consume(pipe: Connection, directory: Path, file: Path) -> None:
    lines = _Lines(file)
    with tailrace.open(directory) as hub:
        deliveries = hub.topic(TOPIC, bytes).tail(group=GROUP)
        signal.signal(signal.SIGTERM, lambda *_: deliveries.shutdown())
        with deliveries:
            pipe.send("ready")
            for delivery in deliveries:
                lines.write(delivery.data, delivery.partition)


def _receive(pipe: Connection, file: Path) -> None:
    lines = _Lines(file)
    pipe.send("ready")
    while True:
        lines.write(pipe.recv_bytes(), 0)
