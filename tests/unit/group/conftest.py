"""A topic and a fake runtime, on every kind of backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.support.backends import open_backend
from tests.support.fake_runtime import FakeRuntime


@pytest.fixture(params=["memory", "memory-gaps", "embedded-none", "embedded-tiny"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = open_backend(request.param, tmp_path / "hub")
    yield opened
    opened.close()


@pytest.fixture
def topic(backend: Backend) -> Topic[Any]:
    return Hub.from_backend(backend).create_topic("orders", partitions=3)


@pytest.fixture
def runtime(backend: Backend) -> FakeRuntime:
    return FakeRuntime(backend)
