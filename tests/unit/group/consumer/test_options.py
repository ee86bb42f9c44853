"""The options of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import InvalidName, InvalidValue
from tailrace.group.consumer.options import ConsumerOptions
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tests.support.fake_runtime import FakeRuntime, consume


@pytest.mark.parametrize(
    "options",
    [
        {"ack": "never"},
        {"until": "tomorrow"},
        {"limit": 0},
        {"attempts": 0},
        {"batch_size": 0},
        {"idle_timeout": 3},
        {"handler_timeout": "soon"},
    ],
)
def test_invalid_options_are_refused_with_the_valid_values(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        ConsumerOptions.of(HubSettings(), **options)


def test_a_type_checker_refuses_the_invalid_options() -> None:
    """Each line is an error of mypy, which also reports unused ignores."""
    with Hub.from_backend(MemoryBackend()) as hub:
        orders = hub.create_topic("orders")
        with pytest.raises(InvalidValue, match="until"):
            orders.tail(group="g", until="nd")  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="ack"):
            orders.tail(group="g", ack="never")  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="until"):
            hub.tail("orders", group="g", until="nd")  # type: ignore[call-overload]
        with pytest.raises(InvalidValue, match="start"):
            orders.tail(group="g", start=3)  # type: ignore[arg-type]


def test_a_bad_id_is_refused() -> None:
    with pytest.raises(InvalidName):
        ConsumerOptions.of(HubSettings(), id="a/b")


def test_a_handler_timeout_sets_the_time_to_drain_a_partition(
    topic: Topic[Any], runtime: FakeRuntime
) -> None:
    with consume(topic, runtime, handler_timeout="2m"):
        pass
    assert runtime.posted[0].revoke_timeout_s == 125.0  # type: ignore[union-attr]
