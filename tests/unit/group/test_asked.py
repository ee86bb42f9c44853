"""The options of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import InvalidName, InvalidValue
from tailrace.group.asked import Asked
from tailrace.hub import Hub
from tailrace.settings import HubSettings
from tailrace.testing import MemoryBackend
from tailrace.topic.topic import Topic
from tests.unit.group.single_owner import SingleOwner, consume


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
def test_bad_options_are_refused_with_what_is_valid(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Asked.of(HubSettings(), **options)


def test_a_type_checker_refuses_what_is_refused() -> None:
    """Each of these is an error to mypy, which also tells of an ignore that is not needed."""
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
        Asked.of(HubSettings(), id="a/b")


def test_a_handler_timeout_gives_the_time_to_let_go_of_a_unit(
    topic: Topic[Any], runtime: SingleOwner
) -> None:
    with consume(topic, runtime, handler_timeout="2m"):
        pass
    assert runtime.told[0].revoke_timeout_s == 125.0  # type: ignore[union-attr]
