"""A real PostgreSQL for tests: found or installed, one per run, a fresh database per test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from tests.support.servers.apt import install
from tests.support.servers.shared import (
    Prepared,
    Unavailable,
    keep,
    open_parent,
    start,
    stop,
)

_USER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "100",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}


@contextmanager
def fresh_database(port: int) -> Iterator[str]:
    """The URL of an empty database of the server at a port, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    server = f"postgresql://{_USER}@127.0.0.1:{port}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        try:
            yield f"{server}/{name}"
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def prepare(directory: Path) -> Prepared:
    """A cluster in a directory, owned by whom it runs as: PostgreSQL refuses root."""
    binaries = _binaries()
    if binaries is None:
        install("PostgreSQL", "postgresql")
        binaries = _binaries()
    if binaries is None:
        raise Unavailable("PostgreSQL was installed, but its programs are not where they should be")
    home = directory / "server"
    home.mkdir()
    is_root = os.geteuid() == 0
    if is_root:
        owner = pwd.getpwnam(_USER)
        os.chown(home, owner.pw_uid, owner.pw_gid)
    initdb = [str(binaries / "initdb"), "-D", str(home / "data"), "-U", _USER, "-A", "trust"]
    done = subprocess.run(
        [*_as_owner(is_root), *initdb, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"initdb failed: {' '.join(done.stderr.split())}")
    return Prepared(
        command=partial(_command, binaries, home, is_root),
        is_ready=partial(_is_ready, binaries),
        stop=signal.SIGINT,
    )


@contextmanager
def own_server() -> Iterator[OwnPostgres]:
    """A server for one test alone, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tailrace-postgres-", dir=open_parent()) as directory:
        os.chmod(directory, 0o755)
        server = OwnPostgres(Path(directory))
        try:
            yield server
        finally:
            server.stop()


class OwnPostgres:
    """A server that one test stops and starts again, at the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = prepare(directory)
        self._process, self.port = start(directory, self._server)

    @property
    def url(self) -> str:
        """The URL of its default database."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: with SIGINT its clients are disconnected, SIGQUIT is a crash."""
        stop(self._process, how)

    def start(self) -> None:
        """Start the server again."""
        self._process, _ = start(self._directory, self._server, self.port)


def _command(binaries: Path, home: Path, is_root: bool, port: int) -> list[str]:
    settings = _SETTINGS | {"port": str(port), "unix_socket_directories": str(home)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    postgres = [str(binaries / "postgres"), "-D", str(home / "data"), *options]
    return [*_as_owner(is_root), *postgres]


def _as_owner(is_root: bool) -> list[str]:
    """What in front of a command keeps its pid and drops root."""
    words = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups"]
    return words if is_root else []


def _is_ready(binaries: Path, port: int) -> bool:
    asked = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(asked, check=False).returncode == 0


def _binaries() -> Path | None:
    """The newest PostgreSQL there is."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.is_dir()]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(initdb).resolve().parent


if __name__ == "__main__":
    keep(Path(sys.argv[1]), prepare)
