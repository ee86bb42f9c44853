"""How long streams pause when consumers come, go and die, beside what Kafka documents."""

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
from bench.consuming import DEADLINE_S, GROUP, TOPIC, Consumer, stamped
from bench.measure import Scale, say
from bench.report import Goal, Row, Sense
from tailrace.group.grants import look

STREAMS = 12
CONSUMERS = 4
PUSH_EVERY_S = 0.005
WATCH_S = 1.0
RECENT_NS = 300_000_000

EAGER = "Kafka, documented, not measured: the eager protocol stops all streams of the group"
SESSION = "Kafka, documented, not measured: session.timeout.ms 45 s, heartbeat.interval.ms 3 s"
REBALANCE = "Kafka, documented, not measured: session.timeout.ms 45 s, then all members rejoin"
BUSY = "processes that wait for a core on a busy machine; a sync stands between the two owners"


class Seen(NamedTuple):
    """Which consumer got a message of a stream, and when."""

    time_ns: int
    consumer: int


class Times(NamedTuple):
    """What one round took, in seconds; `revoked` counts streams that living consumers lost."""

    join_s: float
    leave_s: float
    kill_s: float
    term_s: float
    revoked: int


def rows(scale: Scale) -> list[Row]:
    """The rows of handing over."""
    found = []
    for number in range(scale.rounds):
        say(f"handing over: round {number + 1} of {scale.rounds}")
        with TemporaryDirectory(prefix="tailrace-bench-group-") as directory:
            found.append(_Round(Path(directory)).run())
    join, leave, kill, term = (
        median(times[column] for times in found) for column in range(len(Times._fields) - 1)
    )
    revoked = max(times.revoked for times in found)
    return [
        _row("a consumer joins: longest pause of a moved stream", join, 0.1, EAGER),
        _row("a consumer leaves: longest pause of a moved stream", leave, 0.1, EAGER),
        _row("kill -9 of a consumer: its last stream consumed elsewhere", kill, 1.0, SESSION),
        Row(
            "kill -9 of the leader's process",
            (f"a new term after {term * 1000:.0f} ms", REBALANCE),
            (
                Goal("a new term", term, 1.0, Sense.AT_MOST, " s", BUSY),
                Goal("streams revoked from others", revoked, 0, Sense.AT_MOST, ""),
            ),
        ),
    ]


def _row(work: str, seconds: float, most_s: float, beside: str) -> Row:
    figures = (f"{seconds * 1000:.0f} ms", beside)
    return Row(work, figures, (Goal("time", seconds, most_s, Sense.AT_MOST, " s", BUSY),))


class _Round:
    """Consumers of a fresh hub, to which one message a stream is pushed every few milliseconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._consumers: list[Consumer] = []

    def run(self) -> Times:
        """One of everything."""
        with tailrace.open(self._directory / "hub", sync="none") as hub:
            topic = hub.create_topic(TOPIC, bytes, partitions=STREAMS)
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
        mine = self._streams_of(victim)
        victim.end(signal.SIGKILL)
        kill_s = (self._consumed_elsewhere_ns(mine, killed_ns) - killed_ns) / 1e9
        self._await_shared_by(CONSUMERS - 1)
        term_s, revoked = self._depose(hub)
        return Times(join_s, leave_s, kill_s, term_s, revoked)

    def _join(self) -> None:
        self._consumers.append(Consumer(self._directory, len(self._consumers)))

    def _pause(self, change: Callable[[], None]) -> float:
        """The longest time that a stream which moved with this change was with nobody."""
        since_ns = time.monotonic_ns()
        change()
        time.sleep(WATCH_S)
        pauses = [
            (after.time_ns - before.time_ns) / 1e9 - PUSH_EVERY_S
            for seen in self._seen(since_ns - RECENT_NS).values()
            for before, after in pairwise(seen)
            if before.consumer != after.consumer and after.time_ns >= since_ns
        ]
        assert pauses, "no stream has moved"
        return max(pauses)

    def _depose(self, hub: tailrace.Hub) -> tuple[float, int]:
        detail = hub.group(GROUP).describe()
        [victim] = [c for c in self._consumers if f" {c.pid} " in (detail.leader or "")]
        lines = len(hub.group(GROUP).history(100_000))
        begin = time.monotonic()
        victim.end(signal.SIGKILL)
        while (entry := look(hub.backend, GROUP).entry) is None or entry.term == detail.term:
            assert time.monotonic() < begin + DEADLINE_S, "nobody leads"
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
            if len(recent) == STREAMS and len(owners) == count:
                return
            assert time.monotonic() < deadline, "the streams are not shared"

    def _streams_of(self, consumer: Consumer) -> set[int]:
        number = self._consumers.index(consumer)
        seen = self._seen(time.monotonic_ns() - RECENT_NS)
        return {stream for stream, each in seen.items() if each[-1].consumer == number}

    def _consumed_elsewhere_ns(self, streams: set[int], since_ns: int) -> int:
        """When the last of these streams was first consumed after that."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            seen = self._seen(since_ns)
            alive = {n for n, consumer in enumerate(self._consumers) if not consumer.ended}
            first = {
                stream: min((s.time_ns for s in each if s.consumer in alive), default=0)
                for stream, each in seen.items()
                if stream in streams
            }
            if len(first) == len(streams) and all(first.values()):
                return max(first.values())
            assert time.monotonic() < deadline, "streams of a dead consumer are with nobody"
            time.sleep(0.05)

    def _seen(self, since_ns: int) -> dict[int, list[Seen]]:
        """By stream what was got since then, and by whom, in the order of time."""
        found: dict[int, list[Seen]] = {}
        for number, consumer in enumerate(self._consumers):
            for got in consumer.got():
                if got.got_ns >= since_ns:
                    found.setdefault(got.stream, []).append(Seen(got.got_ns, number))
        return {stream: sorted(seen) for stream, seen in found.items()}


@contextmanager
def _pushing(topic: tailrace.Topic[bytes]) -> Iterator[None]:
    """Push a message to each stream again and again."""
    routes = {topic.route(f"k{number}"): f"k{number}" for number in range(50 * STREAMS)}
    keys, enough = list(routes.values()), threading.Event()
    assert len(keys) == STREAMS

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
