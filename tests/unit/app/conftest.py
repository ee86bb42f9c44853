"""A hub in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.hub.hub import Hub
from tailrace.testing import MemoryBackend


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub
