"""The topics of a simulated hub, and what is pushed to them."""

from __future__ import annotations

from typing import Any

from tailrace.group.definition import TopicFilter
from tailrace.hub import Hub
from tailrace.message import Message, Receipt
from tailrace.payload import Payload
from tailrace.testing.arguments import check_known
from tailrace.testing.simulation import Simulation
from tailrace.topic.topic import Topic


class WorldClock:
    """The clock of those who push."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now_ms(self) -> int:
        """Wall time in milliseconds."""
        return 1_700_000_000_000 + round(self._simulation.now * 1000)

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._simulation.now


class Topics:
    """The topics of one world, by name."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._topics: dict[str, Topic[Any]] = {}
        self._payloads: dict[str, Payload[Any]] = {}

    def create(self, name: str, type: Any, partitions: int) -> None:
        """Create a topic whose values are of this type."""
        self._topics[name] = self._hub.create_topic(name, type, partitions=partitions)
        content_type = self._topics[name].view.definition.content_type
        self._payloads[name] = Payload(type, content_type)

    def check(self, name: str) -> None:
        """`InvalidValue` when there is no such topic."""
        check_known("topic", name, self._topics, f"make it: world.topic({name!r})")

    def push(self, name: str, value: Any, key: str | None) -> Receipt:
        """Push a message."""
        self.check(name)
        return self._topics[name].push(value, key=key)

    def check_scale(self, name: str, partitions: int) -> None:
        """`InvalidValue` when there is no such topic, or it cannot have so many partitions."""
        self.check(name)
        self._topics[name].plan_scale(partitions)

    def scale(self, name: str, partitions: int) -> None:
        """Scale a topic."""
        self._topics[name].scale(partitions)

    def decode(self, message: Message[Any]) -> Any:
        """The value of a message of any topic."""
        return self._payloads[message.topic].decode_message(message)

    def matching(self, filter: str) -> set[str]:
        """The topics that a group consumes."""
        chosen = TopicFilter(filter)
        return {name for name in self._topics if chosen.matches(name)}
