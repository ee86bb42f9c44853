"""The topics of a simulated hub, and the pushes to them."""

from __future__ import annotations

from random import Random
from typing import Any

from tailrace.backend.contract import Transaction
from tailrace.group.store.definition import TopicFilter
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Message, Receipt
from tailrace.payload import Payload
from tailrace.testing.arguments import check_known
from tailrace.testing.simulation import Simulation
from tailrace.topic.view import commit_following


class WorldClock:
    """The clock of producers."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return 1_700_000_000_000 + round(self._simulation.now * 1000)

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return self._simulation.now


class Topics:
    """The topics of one world, by name."""

    def __init__(self, hub: Hub, random: Random) -> None:
        self._hub = hub
        self._random = random
        self._topics: dict[str, Topic[Any]] = {}
        self._payloads: dict[str, Payload[Any]] = {}

    def create(self, name: str, type: Any, partitions: int) -> None:
        """Create a topic with values of this type."""
        self._topics[name] = self._hub.create_topic(name, type, partitions=partitions)
        content_type = self._topics[name].view.definition.content_type
        self._payloads[name] = Payload(type, content_type)

    def check(self, name: str) -> None:
        """Raise `InvalidValue` if the topic does not exist."""
        check_known("topic", name, self._topics, f"make it: world.topic({name!r})")

    def push(self, name: str, value: Any, key: str | None) -> Receipt:
        """Push a message. The seed of the world decides the partition of one without a key."""
        self.check(name)
        topic = self._topics[name]
        if key:
            return topic.push(value, key=key)
        view, record = topic.view, topic.builder.record(value, None, None, None)

        def build() -> Transaction:
            partition = self._random.choice(view.target.partitions)
            return Transaction(((partition, (record,)),), since=view.target.since)

        (landed,) = commit_following(view.backend, {name: view}, build)
        return Receipt(*landed.partition, landed.start, record.timestamp)

    def check_scale(self, name: str, partitions: int) -> None:
        """Raise `InvalidValue` if the topic does not exist or cannot have this many partitions."""
        self.check(name)
        self._topics[name].plan_scale(partitions)

    def scale(self, name: str, partitions: int) -> None:
        """Scale a topic."""
        self._topics[name].scale(partitions)

    def decode(self, message: Message[Any]) -> Any:
        """Return the value of a message of any topic."""
        return self._payloads[message.topic].decode_message(message)

    def matching(self, filter: str) -> set[str]:
        """Return the topics that a filter matches."""
        chosen = TopicFilter(filter)
        return {name for name in self._topics if chosen.matches(name)}
