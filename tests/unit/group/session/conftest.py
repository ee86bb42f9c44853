"""A topic of one partition and a fake runtime, on a backend that fails on demand."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.support.fake_runtime import FakeRuntime
from tests.support.faulty_backend import FaultyBackend


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def topic(backend: FaultyBackend) -> Topic[Any]:
    return Hub.from_backend(backend).create_topic("orders", partitions=1)


@pytest.fixture
def runtime(backend: FaultyBackend) -> FakeRuntime:
    return FakeRuntime(backend)
