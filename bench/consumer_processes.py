"""Processes that consume a topic for the benchmarks, and log each message with its time."""

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
_CONTEXT.set_forkserver_preload(
    ["bench.consumer_processes", "tailrace.backend.embedded", "tailrace.hub.hub"]
)
_LINE = struct.Struct("<QQI")
_SENT = struct.Struct("<Q")


class Received(NamedTuple):
    """A received message: the times of push and delivery, and its partition."""

    pushed_ns: int
    received_ns: int
    partition: int

    @property
    def latency_s(self) -> float:
        """The time from just before the push to the delivery."""
        return (self.received_ns - self.pushed_ns) / 1e9


class Process:
    """A benchmark process that has reported that it is ready."""

    def __init__(self, work: Any, *arguments: Any) -> None:
        self.ended = False
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.wait()

    def wait(self) -> Any:
        """Return the next report of the process."""
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError("a benchmark process does not answer")
        return self._pipe.recv()

    @property
    def pid(self) -> int:
        """The process ID."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """The CPU time used so far."""
        return cpu_seconds(self.pid)

    def end(self, by: int = signal.SIGTERM) -> None:
        """Stop the process by a signal: SIGTERM lets it leave in order."""
        if not self.ended:
            self.ended = True
            os.kill(self.pid, by)
            self._process.join(DEADLINE_S)


class _Receiver(Process):
    """A process that receives messages."""

    file: Path

    def received(self) -> Iterator[Received]:
        """Return the messages received so far."""
        data = self.file.read_bytes() if self.file.exists() else b""
        whole = len(data) // _LINE.size * _LINE.size
        return map(Received._make, _LINE.iter_unpack(data[:whole]))


class Consumer(_Receiver):
    """A process with one consumer of the group."""

    def __init__(self, directory: Path, number: int) -> None:
        self.file = directory / f"received-{number}"
        super().__init__(_consume, directory / "hub", self.file)


class PipeReceiver(_Receiver):
    """A process that receives messages through a pipe."""

    def __init__(self, directory: Path, number: int) -> None:
        self.file = directory / f"received-{number}"
        super().__init__(_receive, self.file)

    def send(self, value: bytes) -> None:
        """Send a message to the process."""
        self._pipe.send_bytes(value)


def stamped() -> bytes:
    """Return the value of a message that is pushed now."""
    return _SENT.pack(time.monotonic_ns())


def idle(pipe: Connection, directory: Path, groups: list[str]) -> None:
    """Run a consumer in its own thread for each group, until SIGTERM."""
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

    def write(self, value: bytes, partition: int) -> None:
        """Log a message that was received now."""
        [pushed_ns] = _SENT.unpack(value)
        os.write(self._file, _LINE.pack(pushed_ns, time.monotonic_ns(), partition))


def _consume(pipe: Connection, directory: Path, file: Path) -> None:
    lines = _Lines(file)
    with tailrace.open(directory) as hub:
        consumer = hub.topic(TOPIC, bytes).tail(group=GROUP)
        signal.signal(signal.SIGTERM, lambda *_: consumer.shutdown())
        with consumer:
            pipe.send("ready")
            for delivery in consumer:
                lines.write(delivery.data, delivery.partition)


def _receive(pipe: Connection, file: Path) -> None:
    lines = _Lines(file)
    pipe.send("ready")
    while True:
        lines.write(pipe.recv_bytes(), 0)
