"""A runtime that must leave no thread, file or socket behind, and a hub."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tests.support.backends import open_backend
from tests.unit.group.runtime.scripted_runtime import ScriptedRuntime


@pytest.fixture(params=["memory", "embedded-none"])
def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScriptedRuntime]:
    backend = open_backend(request.param, tmp_path / "hub")
    files, threads = _open_files(), set(threading.enumerate())
    scripted = ScriptedRuntime(backend)
    yield scripted
    scripted.end()
    left = set(threading.enumerate()) - threads
    assert all(thread.name.startswith("tailrace-sync") for thread in left), "those of the backend"
    backend.close()
    assert set(threading.enumerate()) <= threads
    assert _open_files() <= files
    assert not list((tmp_path / "hub").glob("hub.sockets/*"))
    assert not list((tmp_path / "hub").glob("hub.holds/*"))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    backend = EmbeddedBackend.open(tmp_path / "hub", sync="none")
    yield backend
    backend.close()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
