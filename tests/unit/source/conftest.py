"""A hub, a commit log, dead letters, and runs of a source between them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.settings import HubSettings
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tailrace.testing import ManualClock
from tests.support.faulty_backend import FaultyBackend
from tests.unit.source.scripted_reader import Begin, ScriptedReader, ScriptedReading


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
    def run(reading: ScriptedReading) -> SourceRun:
        return SourceRun(hub, "s", ScriptedReader(reading), log, letters, Until.NOW, ManualClock())

    return run
