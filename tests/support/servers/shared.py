"""One real server per test run, shared by all test processes, and stopped with the last.

A keeper process starts the server in a directory of its own and waits, on a file lock that each
user holds, until there is no user left; then it stops the server by its pid and removes the
directory. The kernel gives locks back whatever becomes of a test process, so nothing stays behind.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).parents[3]
DEADLINE_S = 300.0
_READY_S = 60.0
_PAUSE_S = 0.05
_STARTS_MAX = 3
_CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Unavailable(Exception):
    """A server that cannot be had here, and why."""


class Prepared(NamedTuple):
    """A server that can be started: its command and environment for a port, how one sees that it
    is ready, and the signal that ends it."""

    command: Callable[[int], list[str]]
    is_ready: Callable[[int], bool]
    stop: signal.Signals


@contextmanager
def shared_server(module: str) -> Iterator[int]:
    """The port of the server that `python -m MODULE DIRECTORY` keeps; `Unavailable` without it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    directory = open_parent() / f"tailrace-{module.rpartition('.')[2]}-{run}"
    users, port = _join(directory, module)
    try:
        yield port
    finally:
        users.close()
        _wait_for_the_end(directory)


def open_parent() -> Path:
    """A directory for temporary files that other users, whom servers run as, may pass through."""
    chosen = Path(tempfile.gettempdir()).resolve()
    passable = all(each.stat().st_mode & 0o001 for each in (chosen, *chosen.parents))
    return chosen if passable else Path("/tmp")


def _join(directory: Path, module: str) -> tuple[IO[bytes], int]:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        directory.mkdir(mode=0o755, exist_ok=True)
        try:
            with (directory / "start.lock").open("ab") as starting:
                fcntl.flock(starting, fcntl.LOCK_EX)
                users = (directory / "users.lock").open("ab")
                fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(starting.fileno()), os.stat(starting.name)):
                    return users, _port(directory, module)
        except (BlockingIOError, FileNotFoundError):  # The one before is being stopped.
            time.sleep(_PAUSE_S)
    raise Unavailable(f"the server of another test run is not stopping: {directory}")


def _port(directory: Path, module: str) -> int:
    port = directory / "port"
    if not port.exists():
        keeper = subprocess.Popen(
            [sys.executable, "-m", module, str(directory)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert keeper.stdout is not None
        answer = keeper.stdout.readline().strip()
        if answer != "ready":
            shutil.rmtree(directory, ignore_errors=True)
            raise Unavailable(answer or "its keeper ended early")
    return int(port.read_text())


def _wait_for_the_end(directory: Path) -> None:
    """Wait while the server is being stopped; not while others use it."""
    deadline = time.monotonic() + _READY_S
    idle = 0
    while directory.exists() and idle < 2 and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        try:
            with (directory / "users.lock").open("rb") as users:
                fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
                idle += 1
        except (BlockingIOError, FileNotFoundError):
            idle = 0


def keep(directory: Path, prepare: Callable[[Path], Prepared]) -> None:
    """The keeper: start the server, say so, wait until nobody uses it, stop it."""
    try:
        server = prepare(directory)
        process, port = start(directory, server)
    except Unavailable as reason:
        print(reason, flush=True)
        return
    try:
        (directory / "port").write_text(str(port))
        print("ready", flush=True)
        with (directory / "users.lock").open("ab") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            with (directory / "start.lock").open("ab") as starting:
                fcntl.flock(starting, fcntl.LOCK_EX)
                stop(process, server.stop)
                shutil.rmtree(directory)
    finally:
        stop(process, server.stop)


def start(
    directory: Path, server: Prepared, chosen: int | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server at the chosen port, or at a free one; `Unavailable` if it does not start."""
    log = directory / "log"
    for _ in range(_STARTS_MAX):
        port = chosen or _free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                server.command(port), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = time.monotonic() + _READY_S
        while process.poll() is None and time.monotonic() < deadline:
            if server.is_ready(port):
                return process, port
            time.sleep(_PAUSE_S)
        stop(process, server.stop)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise Unavailable(f"it did not start: {' '.join(last)}")


def stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Stop a server by a signal, and kill it if that takes too long."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(_READY_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    """A port that the kernel gives to no client: a server that is stopped can have it again."""
    lowest = int(_CLIENT_PORTS.read_text().split()[0]) if _CLIENT_PORTS.exists() else 32_768
    for port in random.sample(range(10_000, max(lowest, 20_000)), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise Unavailable("no port is free")
