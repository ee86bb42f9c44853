"""A hub, a commit log, dead letters, and runs of a source between them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.hub import Hub
from tailrace.settings import HubSettings
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock
from tailrace.topic.topic import Topic
from tests.unit.source.shelf import Begin, Shelf, ShelfReader
from tests.unit.topic.faults import FaultyBackend


@pytest.fixture(params=[0, 2], ids=["dense", "gaps"])
def backend(request: pytest.FixtureRequest) -> FaultyBackend:
    return FaultyBackend(gap_every=request.param)


@pytest.fixture
def hub(backend: FaultyBackend) -> Hub:
    return Hub.from_backend(backend, clock=ManualClock(), settings=HubSettings())


@pytest.fixture
def log(hub: Hub) -> Topic[Any]:
    return hub.create_topic("log", partitions=1)


@pytest.fixture
def letters(hub: Hub) -> Topic[Any]:
    return hub.create_topic("letters", partitions=1)


@pytest.fixture
def begin(hub: Hub, log: Topic[Any], letters: Topic[Any]) -> Begin:
    def run(shelf: Shelf) -> SourceRun:
        return SourceRun(hub, "s", ShelfReader(shelf), log, letters, Until.NOW, ManualClock())

    return run
