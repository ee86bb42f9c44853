"""A hub in memory, dense and with gaps, for every test of topics."""

from __future__ import annotations

import pytest

from tailrace.hub import Hub
from tailrace.testing import ManualClock
from tailrace.topic.topic import Topic
from tests.unit.topic.faults import FaultyBackend
from tests.unit.topic.orders import Order


@pytest.fixture(params=[0, 1, 3], ids=["dense", "gaps", "some gaps"])
def backend(request: pytest.FixtureRequest) -> FaultyBackend:
    return FaultyBackend(gap_every=request.param)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hub(backend: FaultyBackend, clock: ManualClock) -> Hub:
    return Hub.from_backend(backend, clock=clock)


@pytest.fixture
def orders(hub: Hub) -> Topic[Order]:
    return hub.create_topic("orders", Order)
