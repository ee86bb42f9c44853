"""A hub over each backend, for every test of what a group keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.backend.contract import Backend
from tailrace.hub import Hub
from tailrace.testing import ManualClock
from tests.contract.backends import open_backend


@pytest.fixture(params=["memory", "memory-gaps", "embedded-none"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = open_backend(request.param, tmp_path / "hub")
    yield opened
    opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub(backend: Backend, clock: ManualClock) -> Hub:
    return Hub.from_backend(backend, clock=clock)
