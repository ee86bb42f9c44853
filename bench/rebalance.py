"""Pauses of partitions when consumers join, leave and die, with the figures Kafka documents."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import tailrace
from bench.consumer_processes import DEADLINE_S, GROUP, TOPIC, Consumer, stamped
from bench.measure import Scale, say
from bench.report import Goal, Row, Sense
from tailrace.group.store.grants import find_leader

PARTITIONS = 12
CONSUMERS = 4
PUSH_EVERY_S = 0.005
WATCH_S = 1.0
RECENT_NS = 300_000_000

EAGER = "Kafka, documented, not measured: the eager protocol stops all partitions of the group"
SESSION = "Kafka, documented, not measured: session.timeout.ms 45 s, heartbeat.interval.ms 3 s"
REBALANCE = "Kafka, documented, not measured: session.timeout.ms 45 s, then all members rejoin"
BUSY = "processes that wait for a core on a busy machine; a sync stands between the two owners"


class Seen(NamedTuple):
    """The consumer of a message, and the time of the delivery."""

    time_ns: int
    consumer: int


class Times(NamedTuple):
    """The times of one round. `revoked` counts partitions that living consumers lost."""

    join_s: float
    leave_s: float
    kill_s: float
    term_s: float
    revoked: int


def rows(scale: Scale) -> list[Row]:
    """Measure rebalances."""
    found = []
    for number in range(scale.rounds):
        say(f"rebalance: round {number + 1} of {scale.rounds}")
        with TemporaryDirectory(prefix="tailrace-bench-group-") as directory:
            found.append(_Round(Path(directory)).run())
    join, leave, kill, term = (
        median(times[column] for times in found) for column in range(len(Times._fields) - 1)
    )
    revoked = max(times.revoked for times in found)
    return [
        _row("a consumer joins: longest pause of a moved partition", join, 0.1, EAGER),
        _row("a consumer leaves: longest pause of a moved partition", leave, 0.1, EAGER),
        _row("kill -9 of a consumer: its last partition consumed elsewhere", kill, 1.0, SESSION),
        Row(
            "kill -9 of the leader's process",
            (f"a new term after {term * 1000:.0f} ms", REBALANCE),
            (
                Goal("a new term", term, 1.0, Sense.AT_MOST, " s", BUSY),
                Goal("partitions revoked from others", revoked, 0, Sense.AT_MOST, ""),
            ),
        ),
    ]


def _row(work: str, seconds: float, most_s: float, beside: str) -> Row:
    figures = (f"{seconds * 1000:.0f} ms", beside)
    return Row(work, figures, (Goal("time", seconds, most_s, Sense.AT_MOST, " s", BUSY),))


class _Round:
    """Consumers of a new hub. Each partition gets a message every few milliseconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._consumers: list[Consumer] = []

    def run(self) -> Times:
        """Measure a join, a leave, a kill and the death of the leader."""
        with tailrace.open(self._directory / "hub", sync="none") as hub:
            topic = hub.create_topic(TOPIC, bytes, partitions=PARTITIONS)
            try:
                for _ in range(CONSUMERS):
                    self._join()
                with _pushing(topic):
                    return self._measure(hub)
            finally:
                for consumer in self._consumers:
                    consumer.end(signal.SIGKILL)

    def _measure(self, hub: tailrace.Hub) -> Times:
        self._await_shared_by(CONSUMERS)
        join_s = self._pause(self._join)
        self._await_shared_by(CONSUMERS + 1)
        leave_s = self._pause(self._consumers[-1].end)
        killed_ns = time.monotonic_ns()
        victim = self._consumers[-2]
        mine = self._partitions_of(victim)
        victim.end(signal.SIGKILL)
        kill_s = (self._consumed_elsewhere_ns(mine, killed_ns) - killed_ns) / 1e9
        self._await_shared_by(CONSUMERS - 1)
        term_s, revoked = self._depose(hub)
        return Times(join_s, leave_s, kill_s, term_s, revoked)

    def _join(self) -> None:
        self._consumers.append(Consumer(self._directory, len(self._consumers)))

    def _pause(self, change: Callable[[], None]) -> float:
        """Return the longest time without an owner of a partition that this change moved."""
        since_ns = time.monotonic_ns()
        change()
        time.sleep(WATCH_S)
        pauses = [
            (after.time_ns - before.time_ns) / 1e9 - PUSH_EVERY_S
            for seen in self._seen(since_ns - RECENT_NS).values()
            for before, after in pairwise(seen)
            if before.consumer != after.consumer and after.time_ns >= since_ns
        ]
        assert pauses, "no partition has moved"
        return max(pauses)

    def _depose(self, hub: tailrace.Hub) -> tuple[float, int]:
        detail = hub.group(GROUP).describe()
        [victim] = [c for c in self._consumers if f" {c.pid} " in (detail.leader or "")]
        lines = len(hub.group(GROUP).history(100_000))
        begin = time.monotonic()
        victim.end(signal.SIGKILL)
        while (entry := find_leader(hub.backend, GROUP).entry) is None or entry.term == detail.term:
            assert time.monotonic() < begin + DEADLINE_S, "no process leads"
            time.sleep(0.002)
        term_s = time.monotonic() - begin
        time.sleep(WATCH_S)
        after = hub.group(GROUP).history(100_000)[lines:]
        return term_s, sum(line.what == "revoking" for line in after)

    def _await_shared_by(self, count: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            time.sleep(0.1)
            recent = self._seen(time.monotonic_ns() - RECENT_NS).values()
            owners = {seen[-1].consumer for seen in recent}
            if len(recent) == PARTITIONS and len(owners) == count:
                return
            assert time.monotonic() < deadline, "the partitions are not shared"

    def _partitions_of(self, consumer: Consumer) -> set[int]:
        number = self._consumers.index(consumer)
        seen = self._seen(time.monotonic_ns() - RECENT_NS)
        return {partition for partition, each in seen.items() if each[-1].consumer == number}

    def _consumed_elsewhere_ns(self, partitions: set[int], since_ns: int) -> int:
        """Return the time at which the last of these partitions was consumed again."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            seen = self._seen(since_ns)
            alive = {n for n, consumer in enumerate(self._consumers) if not consumer.ended}
            first = {
                partition: min((s.time_ns for s in each if s.consumer in alive), default=0)
                for partition, each in seen.items()
                if partition in partitions
            }
            if len(first) == len(partitions) and all(first.values()):
                return max(first.values())
            assert time.monotonic() < deadline, "partitions of a dead consumer have no owner"
            time.sleep(0.05)

    def _seen(self, since_ns: int) -> dict[int, list[Seen]]:
        """Return the deliveries since a time by partition, in the order of time."""
        found: dict[int, list[Seen]] = {}
        for number, consumer in enumerate(self._consumers):
            for message in consumer.received():
                if message.received_ns >= since_ns:
                    found.setdefault(message.partition, []).append(
                        Seen(message.received_ns, number)
                    )
        return {partition: sorted(seen) for partition, seen in found.items()}


@contextmanager
def _pushing(topic: tailrace.Topic[bytes]) -> Iterator[None]:
    """Push a message to each partition at intervals during the block."""
    routes = {topic.route(f"k{number}"): f"k{number}" for number in range(50 * PARTITIONS)}
    keys, enough = list(routes.values()), threading.Event()
    assert len(keys) == PARTITIONS

    def push() -> None:
        while not enough.wait(PUSH_EVERY_S):
            value = stamped()
            topic.push_many([(key, value) for key in keys])

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        yield
    finally:
        enough.set()
        pusher.join()
