"""Compared with Kafka, by confluent-kafka: the delivery loop of a group, and pipelined pushes.

Both by the CPU time of the client, which is this process with the threads of Kafka's client in it,
and by the clock on the wall, for which the server's work counts as well. What the server took of
the CPU is told apart from both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer

from bench import payloads
from bench.group import BATCH, tailed, take_bytes
from bench.measure import OURS, Rates, Scale, Timed, Timer, Turn, take_turns
from bench.peers import kafka
from bench.peers.jars import Unavailable
from bench.peers.kafka import Kafka
from bench.push import producing
from bench.report import Goal, Row, against, figures_of, information, quantity

VALUE_BYTES = 100
PUSH_PARTITIONS = 4
POLL = "confluent-kafka, poll()"
DEFAULT_POLL = "confluent-kafka, poll() with its defaults"
CONSUME = f"confluent-kafka, consume({kafka.AT_ONCE})"
PRODUCE = "confluent-kafka, produce()"
REPORTED = "confluent-kafka, produce() with callbacks"
SYNCED = 'tailrace, sync="batch"'

LOOP = "for delivery in topic.tail(group=...) beside Kafka, 100 B"
PUSH = "pipelined producer.push beside Kafka, 100 B, no sync"
CLOCK = {Timed.CPU: "CPU time of the client", Timed.WALL: "by the clock on the wall"}

POLL_REASON = (
    "each delivery is a Python object that is made, checked against the lease, acknowledged and"
    " asked for its bytes: three quarters of the time; Kafka's client fetches in threads of C"
)
PUSH_REASON = {
    Timed.CPU: (
        "two thirds of the time are a push's own Python: its checks, the batch, its future and the"
        " clock; produce() is one call into C, and without a callback nobody is told of a failure"
    ),
    Timed.WALL: (
        "Python runs one thread at a time, so pushing and committing take turns; Kafka's client"
        " sends in threads of C, and its server is a process of its own"
    ),
}


def rows(scale: Scale) -> list[Row]:
    """Measure Tailrace and Kafka. Without Kafka the rows say why it was not measured."""
    with TemporaryDirectory(prefix="tailrace-bench-kafka-") as directory:
        try:
            with kafka.opened(Path(directory)) as server:
                loops = [_loop(server, scale, timed) for timed in CLOCK]
                return [*loops, *(_push(server, scale, timed) for timed in CLOCK)]
        except Unavailable as reason:
            works = [_work(name, timed) for name in (LOOP, PUSH) for timed in CLOCK]
            return [Row(work, (), (), (f"Kafka: {reason}",)) for work in works]


class _Turns(ABC):
    """Turns of a Kafka client, with the CPU time that each cost the server."""

    def __init__(self, server: Kafka, count: int) -> None:
        self._server_s: list[float] = []
        self._server = server
        self._count = count

    @abstractmethod
    def __call__(self, directory: Path, timer: Timer) -> int: ...

    def _timed(self, timer: Timer, work: Callable[[], None]) -> int:
        before = self._server.cpu_seconds()
        with timer.running():
            work()
        self._server_s.append(self._server.cpu_seconds() - before)
        return self._count

    def per_million_s(self) -> float:
        """Return the CPU time of the server for a million messages, without the first turn."""
        return 1e6 * median(self._server_s[1:]) / self._count


class _Consuming(_Turns):
    """A consumer reads a whole topic and commits its offsets. The clock starts when it has
    joined and received its first message."""

    def __init__(
        self,
        server: Kafka,
        topic: str,
        count: int,
        use: Callable[[Consumer, int], None],
        settings: Mapping[str, int],
    ) -> None:
        super().__init__(server, count)
        self._topic = topic
        self._use = use
        self._settings = settings

    def __call__(self, directory: Path, timer: Timer) -> int:
        with self._server.consuming(self._topic, self._settings) as consumer:
            kafka.await_first(consumer)
            return self._timed(timer, lambda: self._consume(consumer))

    def _consume(self, consumer: Consumer) -> None:
        self._use(consumer, self._count - 1)
        consumer.commit(asynchronous=False)


class _Producing(_Turns):
    """A producer sends messages to a new topic, and flushes."""

    def __init__(
        self,
        server: Kafka,
        messages: list[tuple[bytes, bytes]],
        use: Callable[[Producer, str, list[tuple[bytes, bytes]]], None],
    ) -> None:
        super().__init__(server, len(messages))
        self._messages = messages
        self._use = use

    def __call__(self, directory: Path, timer: Timer) -> int:
        topic = self._server.create_topic(PUSH_PARTITIONS)
        with self._server.producing() as producer:
            self._use(producer, topic, self._messages[:1])
            return self._timed(timer, lambda: self._use(producer, topic, self._messages))


def _loop(server: Kafka, scale: Scale, timed: Timed) -> Row:
    work = _work(LOOP, timed)
    batches = scale.count(38)
    topic = kafka.fill(server, payloads.columns(BATCH, VALUE_BYTES), batches, partitions=1)
    count = batches * BATCH
    peers: dict[str, _Turns] = {
        POLL: _Consuming(server, topic, count, kafka.poll, kafka.UNPAUSED),
        CONSUME: _Consuming(server, topic, count, kafka.consume, kafka.UNPAUSED),
    }
    if timed is Timed.WALL:
        peers[DEFAULT_POLL] = _Consuming(server, topic, count, kafka.poll, kafka.DEFAULTS)
    rates = take_turns(work, {OURS: _tailing(batches), **peers}, scale.rounds, timed)
    goal = against(rates, POLL, 1.0, reason=POLL_REASON)
    return _row(work, rates, peers, (goal,), information(rates, CONSUME))


def _tailing(batches: int) -> Turn:
    """Turns of our loop, from its first message to its last, as for Kafka's consumer. The time
    includes leaving the group, which commits the last acknowledgements."""
    count = batches * BATCH

    def turn(directory: Path, timer: Timer) -> int:
        with tailed(directory, batches) as topic, ExitStack() as stack:
            deliveries = iter(stack.enter_context(topic.tail(group="bench", limit=count)))
            next(deliveries)
            with timer.running():
                take_bytes(deliveries)
                stack.close()
        return count

    return turn


def _push(server: Kafka, scale: Scale, timed: Timed) -> Row:
    work = _work(PUSH, timed)
    messages = payloads.pairs(scale.count(200_000), VALUE_BYTES)
    ours = {OURS: producing(messages)}
    if timed is Timed.WALL:
        ours[SYNCED] = producing(messages, "batch")
    peers: dict[str, _Turns] = {
        REPORTED: _Producing(server, messages, kafka.produce_reported),
        PRODUCE: _Producing(server, messages, kafka.produce),
    }
    rates = take_turns(work, {**ours, **peers}, scale.rounds, timed)
    goals = tuple(
        against(rates, other, 1.0, reason=PUSH_REASON[timed]) for other in (REPORTED, PRODUCE)
    )
    return _row(work, rates, peers, goals)


def _work(name: str, timed: Timed) -> str:
    return f"{name}, {CLOCK[timed]}"


def _row(
    work: str,
    rates: Rates,
    peers: Mapping[str, _Turns],
    goals: tuple[Goal, ...],
    ratios: tuple[str, ...] = (),
) -> Row:
    server = (_besides(rates, name, turns.per_million_s()) for name, turns in peers.items())
    return Row(work, (*figures_of(rates, "messages"), *ratios, *server), goals)


def _besides(rates: Rates, peer: str, per_million_s: float) -> str:
    """Return the CPU time of Kafka's server, and the ratio of Tailrace to client and server."""
    took = f"Kafka's server besides, for {peer.partition(', ')[2]}: "
    took += f"{quantity(per_million_s)} CPU s a million messages"
    if rates.timed is Timed.WALL:
        return took
    together_s = 1e6 / rates.median(peer) + per_million_s
    return f"{took}, {rates.median(OURS) * together_s / 1e6:.2f}x both together"
