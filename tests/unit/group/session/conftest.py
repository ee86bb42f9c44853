"""A topic of one partition on a backend that fails when told to."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.hub import Hub
from tailrace.topic.topic import Topic
from tests.unit.group.single_owner import SingleOwner
from tests.unit.topic.faults import FaultyBackend


@pytest.fixture
def backend() -> FaultyBackend:
    return FaultyBackend()


@pytest.fixture
def topic(backend: FaultyBackend) -> Topic[Any]:
    return Hub.from_backend(backend).create_topic("orders", partitions=1)


@pytest.fixture
def runtime(backend: FaultyBackend) -> SingleOwner:
    return SingleOwner(backend)
