"""A hub in memory, dense and with gaps, for every test of topics."""

from __future__ import annotations

import pytest

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.support.topics import Order


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
