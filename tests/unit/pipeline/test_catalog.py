"""Pipelines and subscriptions share one namespace of names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import InvalidName
from tailrace.hub.hub import Hub
from tailrace.pipeline.catalog import find, register
from tailrace.pipeline.pipeline import Pipeline
from tailrace.subscription.store.shared_names import check_unused, unused_by_others
from tailrace.testing import MemoryBackend
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.running_pipeline import add


@pytest.fixture
def hub() -> Hub:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders", partitions=1)
    return hub


@pytest.fixture
def lake(tmp_path: Path) -> Pipeline:
    made = Pipeline("lake", CountingReader(3))
    add(made, tmp_path, "crm")
    return made


def test_a_pipeline_with_the_name_of_a_subscription_does_not_run(hub: Hub, lake: Pipeline) -> None:
    hub.create_subscription("lake", topic="orders")
    before = hub.topics()
    with pytest.raises(InvalidName, match="there is a subscription 'lake'"):
        lake.run(hub, once=True)
    assert hub.topics() == before
    assert find(hub.backend.store, "lake") is None


def test_a_subscription_that_is_created_meanwhile_keeps_a_pipeline_out_of_the_catalog(
    hub: Hub, lake: Pipeline
) -> None:
    hub.create_subscription("lake", topic="orders")
    with pytest.raises(InvalidName, match="there is a subscription 'lake'"):
        register(hub.backend.store, lake.definition)
    assert find(hub.backend.store, "lake") is None


def test_a_subscription_cannot_have_the_name_of_a_pipeline(hub: Hub, lake: Pipeline) -> None:
    lake.run(hub, once=True)
    with pytest.raises(InvalidName, match="there is a pipeline 'lake'"):
        hub.create_subscription("lake", topic="orders")
    assert hub.subscriptions() == []
    lake.run(hub, once=True)


def test_a_creation_expects_that_no_other_kind_has_the_name(hub: Hub) -> None:
    assert unused_by_others("pipeline", "lake") == {"source/lake": 0, "subscription/lake": 0}
    assert unused_by_others("subscription", "lake") == {"pipeline/lake": 0, "source/lake": 0}
    assert unused_by_others("source", "lake", "pipeline") == {"subscription/lake": 0}
    check_unused(hub.backend.store, "pipeline", "lake")
