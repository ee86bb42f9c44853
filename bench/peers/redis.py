"""Redis Streams: Debian's server on a free loopback port, and redis-py with pipelines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import redis

from bench.measure import say

PIPELINE = 1000
"""The number of commands sent at once, whose replies are read together."""

HOW_TO_GET_IT = "redis-server is not installed; Debian: apt-get install redis-server"

_STARTS_MAX = 5
_START_SECONDS_MAX = 10.0
_POLICY = Path("/usr/sbin/policy-rc.d")


def available() -> bool:
    """True if a server can be started. Root installs one."""
    if shutil.which("redis-server") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    return shutil.which("redis-server") is not None


def _install() -> None:
    say("installing redis-server")
    if not _POLICY.exists():
        # Without this Debian would start a server of its own.
        _POLICY.write_text("#!/bin/sh\nexit 101\n")
        _POLICY.chmod(0o755)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in ("update -qq", "install -qq -y --no-install-recommends redis-server"):
        subprocess.run(
            ["apt-get", *command.split()],
            env=environment,
            check=False,
            stdout=subprocess.DEVNULL,
        )


def client(port: int) -> Any:
    """Return a client of a server on this host."""
    return redis.Redis(port=port)


class Redis(NamedTuple):
    """A client and its server."""

    client: Any
    pid: int

    def cpu_seconds(self) -> float:
        """The CPU time of the server so far."""
        nanoseconds = Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]
        return int(nanoseconds) / 1e9


class Durability(Enum):
    """What a server writes to disk, as options of its command."""

    NONE = "--appendonly no"
    ALWAYS = "--appendonly yes --appendfsync always"
    """Each command is on the disk before it is answered."""


@contextmanager
def opened(directory: Path, durability: Durability = Durability.NONE) -> Iterator[Redis]:
    """Start a server."""
    for _ in range(_STARTS_MAX):
        port = _free_port()
        with _server(directory, port, durability) as server:
            client = redis.Redis(port=port)
            if _answers(client, server):
                with client:
                    yield Redis(client, server.pid)
                return
    raise RuntimeError(f"redis-server did not start in {_STARTS_MAX} attempts")


def add(client: Any, messages: list[tuple[bytes, bytes]]) -> None:
    """Send messages to one stream, `PIPELINE` at a time."""
    for start in range(0, len(messages), PIPELINE):
        pipeline = client.pipeline(transaction=False)
        for key, value in messages[start : start + PIPELINE]:
            pipeline.xadd("log", {b"k": key, b"v": value})
        pipeline.execute()


@contextmanager
def _server(
    directory: Path, port: int, durability: Durability
) -> Iterator[subprocess.Popen[bytes]]:
    options = f"--port {port} --bind 127.0.0.1 --dir {directory} --daemonize no"
    options = f"{options} {durability.value}"
    server = subprocess.Popen(
        ["redis-server", *options.split(), "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        yield server
    finally:
        server.terminate()
        server.wait()


def _answers(client: Any, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and server.poll() is None:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.01)
        else:
            return True
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
