"""Objects that have a hub open are not pickled: the error says what to do instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import tailrace
import tailrace.aio
from tailrace.app.running_app import RunningApp
from tailrace.errors import Error
from tailrace.hub.hub import Hub
from tailrace.testing import MemoryBackend

OPEN: dict[str, Callable[[Hub], object]] = {
    "Hub": lambda hub: hub,
    "Topic": lambda hub: hub.topic("orders"),
    "Producer": lambda hub: hub.topic("orders").producer(),
    "Consumer": lambda hub: hub.tail("orders", group="billing"),
    "Group": lambda hub: hub.group("billing"),
    "Subscription": lambda hub: hub.create_subscription("crm", topic="orders"),
    "DeadLetters": lambda hub: hub.create_subscription("crm", topic="orders").dead_letters,
    "RunningApp": lambda _hub: RunningApp({}),
    "OpenTransaction": lambda hub: hub.transaction(),
    "LineageReader": lambda hub: hub.topic("orders").reader(),
}
WAYS: dict[str, Callable[[object], object]] = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.fixture
def hub() -> Hub:
    hub = Hub.from_backend(MemoryBackend())
    hub.create_topic("orders", partitions=1).push(1)
    list(hub.tail("orders", group="billing", until="end"))
    return hub


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPEN)
def test_an_object_that_has_a_hub_open_names_itself_and_what_to_do(
    hub: Hub, name: str, way: str
) -> None:
    with pytest.raises(Error, match=f"^{name} objects cannot be pickled.* with tailrace.open"):
        WAYS[way](OPEN[name](hub))


def test_the_objects_of_asyncio_are_not_pickled_either(hub: Hub) -> None:
    for held in (tailrace.aio.Hub(hub), tailrace.aio.Topic(hub.topic("orders"))):
        with pytest.raises(Error, match="cannot be pickled"):
            pickle.dumps(held)


def test_a_pool_of_processes_gets_the_error_for_a_topic_of_a_directory(tmp_path: Path) -> None:
    with (
        tailrace.open(tmp_path / "hub", sync="none") as hub,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        sent = pool.submit(repr, hub.create_topic("orders"))
        with pytest.raises(Error, match="Topic objects cannot be pickled"):
            sent.result(60)
