"""Queues with messages of known times, and the copies that replays have pushed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from tailrace import Envelope, Hub, Queue, Topic
from tailrace.log.columns import records_of
from tailrace.log.redelivered import REPLAYED
from tailrace.testing import MemoryBackend
from tests.support.workers import SOON

MINUTE_MS = 60_000
NOON_MS = 1_800_000_000_000


class StoredMessage(NamedTuple):
    """A message of a topic: its key, its value and, if it is a copy, the replay that pushed it."""

    key: str
    value: Any
    replay: str | None


def make_queue(
    *, shards: int = 4, backend: MemoryBackend | None = None, **options: Any
) -> tuple[Hub, Queue[Any]]:
    """Return a hub in memory, and a queue in it."""
    hub = Hub.from_backend(backend or MemoryBackend())
    options.setdefault("retry", SOON)
    return hub, hub.queue("jobs", shards=shards, **options)


def push_minutes(queue: Queue[Any], minutes: Iterable[int], keys: int = 5) -> None:
    """Push the number of each minute after noon as a message of that time, one by one."""
    for minute in minutes:
        queue.push(minute, key=f"k{minute % keys}", timestamp=at(minute))


def push_batch(queue: Queue[Any], minutes: Iterable[int], keys: int = 5) -> None:
    """Push the messages of these minutes in one batch for each shard."""
    queue.push_many([Envelope(each, key=f"k{each % keys}", timestamp=at(each)) for each in minutes])


def at(minute: int) -> int:
    """Return a minute after noon, in milliseconds since 1970."""
    return NOON_MS + minute * MINUTE_MS


def stored_messages(topic: Topic[Any]) -> list[StoredMessage]:
    """Return every message of a topic, in lineage order."""
    reader = topic.reader()
    found: list[StoredMessage] = []
    while reads := reader.poll():
        for partition, records in reads:
            for record, message in zip(
                records_of(records), topic.messages(partition, records), strict=True
            ):
                replay = (record.headers or {}).get(REPLAYED)
                shown = None if replay is None else replay.decode()
                found.append(StoredMessage(str(message.key), message.value, shown))
    return found


def copies(topic: Topic[Any]) -> list[StoredMessage]:
    """Return the copies of a topic that replays have pushed, in lineage order."""
    return [each for each in stored_messages(topic) if each.replay is not None]


def values_by_key(messages: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of each key, in order."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for key, value in messages:
        found[key].append(value)
    return dict(found)
