"""Hubs for operators: in memory, and in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.hub import Hub
from tailrace.testing import MemoryBackend
from tests.unit.operations.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(Hub.from_backend(MemoryBackend()), tmp_path)
