"""The pipeline ``lake`` in a hub in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.hub.hub import Hub
from tailrace.testing import MemoryBackend
from tests.support.pipelines.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(Hub.from_backend(MemoryBackend()), tmp_path)
