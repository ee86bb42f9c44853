"""A hub with a topic to read."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tests.unit.readers.topic.read_topics import LastingBackend


@pytest.fixture(params=[0, 2], ids=["dense", "gaps"])
def shop(request: pytest.FixtureRequest) -> Hub:
    return Hub.from_backend(LastingBackend("shop", gap_every=request.param))


@pytest.fixture
def orders(shop: Hub) -> Topic[Any]:
    return shop.create_topic("orders", partitions=2)
