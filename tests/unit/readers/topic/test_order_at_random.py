"""Topics that are pushed to and scaled at random, from seeds, while they are read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.unit.readers.topic.read_topics import (
    LastingBackend,
    MemoryTopicReader,
    TopicSource,
    store_all,
    values_by_key,
)

pytestmark = pytest.mark.part("pipelines")

COUNTS = (1, 2, 3, 4, 6, 8, 12)
KINDS = {None: "rows", "copy": "a mirror"}
KEYS = [f"k{number}" for number in range(12)]


class _Producer:
    """Pushes numbered messages to a topic, and scales it."""

    def __init__(self, topic: Topic[Any], chance: random.Random) -> None:
        self._topic = topic
        self._chance = chance
        self.pushed: dict[str, list[Any]] = {}
        self.count = 0

    def act(self) -> None:
        """Scale the topic, or push some messages."""
        if self._chance.random() < 0.3:
            self._topic.scale(self._chance.choice(COUNTS))
            return
        keys = self._chance.choices(KEYS, k=self._chance.randint(1, 9))
        numbers = range(self.count, self.count + len(keys))
        self.count += len(keys)
        given = [(key, {"n": number}) for key, number in zip(keys, numbers, strict=True)]
        self._topic.push_many(given)
        for key, value in given:
            self.pushed.setdefault(key, []).append(value)


def _read_at_random(seed: int, into: str | None) -> tuple[_Producer, TopicSource]:
    """Push, scale and read at random, with restarts, until everything was read."""
    chance = random.Random(seed)
    shop = Hub.from_backend(LastingBackend("shop", gap_every=chance.choice([0, 2])))
    router = chance.choice(["shard-consistent", "range"])
    orders = shop.create_topic("orders", partitions=chance.choice(COUNTS), router=router)
    producer = _Producer(orders, chance)
    source = TopicSource(MemoryTopicReader(shop, into=into), partitions=chance.choice([1, 4]))
    target = source.hub.create_topic("copy", partitions=chance.choice(COUNTS))
    for _ in range(chance.randint(0, 12)):
        producer.act()
    run: SourceRun | None = None
    for _ in range(60):
        producer.act()
        if chance.random() < 0.1:
            target.scale(chance.choice(COUNTS))
        if run is None or chance.random() < 0.2:  # The earlier run ends without notice.
            run = source.begin(chance.choice(list(Until)))
        for _ in range(chance.randint(0, 6)):
            run.step()
    with source.begin(Until.STOPPED) as last:
        store_all(last)
    return producer, source


@pytest.mark.parametrize("into", KINDS, ids=KINDS.get)
def test_every_message_is_stored_once_and_in_order_per_key_over_scalings_and_restarts(
    into: str | None, record_evidence: RecordEvidence
) -> None:
    seeds = count(f"topics read as {KINDS[into]}", test=10, soak=1000)
    first = random.randrange(10**6)
    violations = []
    for seed in range(first, first + seeds):
        producer, source = _read_at_random(seed, into)
        if into is None:
            found = values_by_key(source.log, "source.key")
        else:
            found = values_by_key(source.hub.topic(into))
        if found != producer.pushed:
            violations.append(seed)
    what = f"histories of a scaled topic that is read as {KINDS[into]}"
    record_evidence("pipelines", what, seeds, [first], len(violations))
    assert violations == []


def test_a_restart_at_every_batch_loses_and_repeats_no_message() -> None:
    shop = Hub.from_backend(LastingBackend("shop"))
    orders = shop.create_topic("orders", partitions=4)
    source = TopicSource(MemoryTopicReader(shop), partitions=2)
    for partitions in (12, 8, 2, 6):
        orders.push_many([(key, {"n": number}) for number in range(20) for key in KEYS])
        orders.scale(partitions)
    stored = True
    while stored:
        with source.begin(Until.STOPPED) as run:
            stored = run.step()
    assert values_by_key(source.log, "source.key") == values_by_key(orders)
