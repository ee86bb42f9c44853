"""A hub over each backend, for the tests of the store of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.backend.contract import Backend
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock
from tests.support.backends import open_backend
from tests.support.topics import push


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


@pytest.fixture
def orders(hub: Hub) -> Topic[Any]:
    """2 partitions, then 4, all with records of many keys; `1.0` and `1.1` follow `0.0`."""
    topic = hub.create_topic("orders", partitions=2)
    push(topic, 40, keys=40)
    topic.scale(4)
    push(topic, 40, keys=40)
    return topic
