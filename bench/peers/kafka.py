"""Kafka: one broker in a directory of its own, on free loopback ports, and confluent-kafka.

The broker has the options of Java that Kafka's own scripts give it. It acknowledges what is in the
page cache, as Kafka does unless told otherwise.
"""

from __future__ import annotations

import base64
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.machine import cpu_seconds
from bench.measure import say
from bench.peers import jars
from bench.peers.jars import Unavailable
from tailrace.errors import ConfigError
from tailrace.spark.java import find_java

AT_ONCE = 500
"""The number of messages requested at once."""

DEFAULTS: Mapping[str, int] = {}
UNPAUSED: Mapping[str, int] = {"queued.min.messages": 1_000_000}
"""A consumer with this number of messages waiting fetches none for a second. The default is
100,000, with which a faster loop waits most of the time."""

_Report: TypeAlias = Callable[[KafkaError | None, Message], None]
_QUIET = {"log_level": 3}
_STARTS_MAX = 3
_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 30.0
_ANSWER_SECONDS_MAX = 30.0
_SHOWN = 2000
_JAVA_OPTIONS = (
    "-server -Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20"
    " -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent"
    " -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
)
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
"""


class Kafka(NamedTuple):
    """A broker: its address and its process."""

    address: str
    pid: int

    def cpu_seconds(self) -> float:
        """The CPU time used so far."""
        return cpu_seconds(self.pid)

    def create_topic(self, partitions: int) -> str:
        """Create a topic with a new name."""
        name = f"log-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.address, **_QUIET})
        created = admin.create_topics([NewTopic(name, partitions, 1)])
        created[name].result(_ANSWER_SECONDS_MAX)
        return name

    @contextmanager
    def producing(self) -> Iterator[Producer]:
        """Return a producer with the defaults: acknowledged by all replicas (one here)."""
        producer = Producer({"bootstrap.servers": self.address, **_QUIET})
        try:
            yield producer
            assert producer.flush(_ANSWER_SECONDS_MAX) == 0, "messages were not acknowledged"
        finally:
            producer.close()

    @contextmanager
    def consuming(self, topic: str, settings: Mapping[str, int]) -> Iterator[Consumer]:
        """Return the only consumer of a new group, at the start of a topic."""
        begin = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self.address, **begin, **_QUIET, **settings})
        consumer.subscribe([topic])
        try:
            yield consumer
        finally:
            consumer.close()


def produce(producer: Producer, topic: str, messages: Iterable[tuple[bytes, bytes]]) -> None:
    """Produce by the smallest possible loop: without callbacks, waiting while the queue is full."""
    send = producer.produce
    for key, value in messages:
        try:
            send(topic, value, key)
        except BufferError:
            _send_later(producer, topic, key, value, None)
    producer.flush()


def produce_reported(
    producer: Producer, topic: str, messages: Iterable[tuple[bytes, bytes]]
) -> None:
    """Produce by the loop of the documentation: each message has a delivery callback."""
    send, poll, report = producer.produce, producer.poll, _report
    for key, value in messages:
        poll(0)
        try:
            send(topic, value, key, on_delivery=report)
        except BufferError:
            _send_later(producer, topic, key, value, report)
    producer.flush()


def fill(server: Kafka, batch: pa.RecordBatch, batches: int, partitions: int) -> str:
    """Create a topic with the messages of a batch, repeated."""
    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
    messages: list[tuple[Any, Any]] = list(zip(keys, values, strict=True))
    topic = server.create_topic(partitions)
    with server.producing() as producer:
        for _ in range(batches):
            produce(producer, topic, messages)
    return topic


def await_first(consumer: Consumer) -> None:
    """Wait until the consumer has joined and received its first message."""
    deadline = time.monotonic() + _ANSWER_SECONDS_MAX
    while (message := consumer.poll(0.1)) is None:
        assert time.monotonic() < deadline, "no message comes"
    _refuse_error(message)


def poll(consumer: Consumer, count: int) -> None:
    """Read key and value of messages one at a time, by the loop of the documentation."""
    poll = consumer.poll
    while count:
        message = poll(1.0)
        if message is None:
            continue
        if message.error():
            _refuse_error(message)
        message.key(), message.value()
        count -= 1


def consume(consumer: Consumer, count: int) -> None:
    """Read key and value of messages in lists of up to `AT_ONCE`."""
    while count:
        messages = consumer.consume(min(AT_ONCE, count), 1.0)
        for message in messages:
            if message.error():
                _refuse_error(message)
            message.key(), message.value()
        count -= len(messages)


@contextmanager
def opened(directory: Path) -> Iterator[Kafka]:
    """Start a broker, and stop it at the end. Raises `Unavailable` without Kafka."""
    libraries = jars.fetch("kafka")
    try:
        java = find_java().home / "bin" / "java"
    except ConfigError as error:
        raise Unavailable(f"its server is Java: {error}") from error
    for number in range(_STARTS_MAX):
        home = directory / f"kafka-{number}"
        home.mkdir()
        with _server([str(java), "-cp", f"{libraries}/*"], home) as kafka:
            if kafka is not None:
                yield kafka
                return
        say(f"Kafka's server: {(home / 'server.log').read_text(errors='replace')[-_SHOWN:]}")
    raise Unavailable(f"its server did not start in {_STARTS_MAX} attempts")


@contextmanager
def _server(java: list[str], home: Path) -> Iterator[Kafka | None]:
    """Start a broker in a directory. None if it ends before it answers: a port was in use."""
    broker, controller = _free_ports()
    settings = home / "server.properties"
    settings.write_text(_PROPERTIES.format(broker=broker, controller=controller, directory=home))
    storage = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)]
    with (home / "server.log").open("wb") as log:
        subprocess.run([*java, *storage], check=False, stdout=log, stderr=log)
        server = subprocess.Popen(
            [*java, *_JAVA_OPTIONS.split(), "kafka.Kafka", str(settings)], stdout=log, stderr=log
        )
    try:
        yield Kafka(f"127.0.0.1:{broker}", server.pid) if _answers(server, broker) else None
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and server.poll() is None:
        try:
            # Its client would complain of every attempt that fails.
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10.0)
        except (OSError, KafkaException):
            time.sleep(0.1)
        else:
            return True
    return False


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for listener in (one, other):
            listener.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _send_later(
    producer: Producer, topic: str, key: bytes, value: bytes, report: _Report | None
) -> None:
    """Send the messages that found the queue full, as soon as there is space."""
    while True:
        producer.poll(0.1)
        try:
            return producer.produce(topic, value, key, on_delivery=report)
        except BufferError:
            continue


def _report(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _refuse_error(message: Message) -> None:
    if (error := message.error()) is not None:
        raise KafkaException(error)
