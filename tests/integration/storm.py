"""Processes that push to and consume a topic while terrible things are done to them."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import tailrace
from tailrace.group.asked import Ack
from tailrace.group.deliveries import Deliveries
from tailrace.group.delivery import Delivery
from tests.integration.children import Child, Report
from tests.integration.processes import stop
from tests.integration.sightings import TOPIC, Blow, Incident, Line, Lines

GROUP = "billing"
HANDFUL = 64
KEYS = 200
LEAVE_NS = 2_000_000_000
"""Who cannot commit for so long, because another is paused within a commit, leaves without."""

T = TypeVar("T")
R = TypeVar("R")

_VALUE = struct.Struct("<II")


def push(report: Report, directory: Path, file: Path, count: int, seconds: float) -> None:
    """Push so many messages with random keys, in bursts over so long, and keep the receipts."""
    lines, chance = Lines(file), random.Random(count)
    numbers: defaultdict[int, int] = defaultdict(int)
    with tailrace.open(directory) as hub:
        topic = hub.topic(TOPIC, bytes)
        begin, pushed = time.monotonic(), 0
        while pushed < count:
            burst = []
            for _ in range(min(count - pushed, chance.randint(1, max(1, count // 100)))):
                key = chance.randrange(KEYS)
                burst.append((key, numbers[key]))
                numbers[key] += 1
            messages = [(f"k{key}", _VALUE.pack(key, n)) for key, n in burst]
            receipts = patiently(topic.push_many, messages)
            lines.write(
                [
                    Line(time.monotonic_ns(), *each, r.storage, r.partition, r.offset, marked=False)
                    for each, r in zip(burst, receipts, strict=True)
                ]
            )
            pushed += len(burst)
            time.sleep(max(0.0, begin + seconds * pushed / count - time.monotonic()))
    report("pushed")


def patiently(work: Callable[[T], R], what: T) -> R:
    """Do it, however long a process that was paused within a commit holds up all others."""
    while True:
        try:
            return work(what)
        except tailrace.BackendUnavailable as error:
            if not error.retryable:
                raise


def consume(
    report: Report, directory: Path, file: Path, ack: Ack, settings: tailrace.HubSettings
) -> None:
    """Consume until told to leave, and write down everything before it is acknowledged."""
    lines, leaving = Lines(file), threading.Event()
    with tailrace.open(directory, settings=settings) as hub:
        idle = None if ack == "auto" else "20ms"
        deliveries = hub.topic(TOPIC, bytes).tail(group=GROUP, ack=ack, idle_timeout=idle)

        def leave(*_: object) -> None:
            leaving.set()
            deliveries.shutdown()

        signal.signal(signal.SIGTERM, leave)
        with deliveries:
            report("joined")
            while not leaving.is_set():
                (_one_by_one if ack == "auto" else _in_handfuls)(deliveries, lines)


def _one_by_one(deliveries: Deliveries[bytes], lines: Lines) -> None:
    for delivery in deliveries:
        lines.write([line_of(delivery)])


def _in_handfuls(deliveries: Deliveries[bytes], lines: Lines) -> None:
    handful: list[Delivery[bytes]] = []
    seen: list[Line] = []

    def done() -> None:
        lines.write(seen)
        for each in handful:
            each.ack()
        handful.clear()
        seen.clear()

    for delivery in deliveries:
        seen.append(line_of(delivery))
        handful.append(delivery)
        if len(handful) == HANDFUL:
            done()
    done()


def line_of(delivery: Delivery[bytes]) -> Line:
    """What is to be known of a delivery that was handed out now."""
    key, number = _VALUE.unpack(delivery.data)
    place = delivery.storage, delivery.partition, delivery.offset
    return Line(time.monotonic_ns(), key, number, *place, marked=delivery.redelivered)


@dataclass(slots=True)
class Consumer:
    """A process that consumes, and what became of it."""

    number: int
    child: Child
    joined: bool = False
    paused: Incident | None = None
    continues_at: float = 0.0

    def await_joined(self) -> None:
        """Return when it takes part."""
        if not self.joined:
            assert self.child.next_report() == "joined"
            self.joined = True


@dataclass(slots=True)
class Storm:
    """Consumers over a hub, those that are there now, and all that befell them."""

    directory: Path
    settings: tailrace.HubSettings
    seed: int
    pause_s: tuple[float, float]
    chance: random.Random = field(init=False)
    present: list[Consumer] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    terms_ended: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def join(self) -> None:
        """One more consumer; every third one acknowledges by hand."""
        number = len(self.files)
        self.files.append(self.directory / f"seen-{number}")
        ack: Ack = "manual" if number % 3 == 2 else "auto"
        child = Child(consume, self.directory / "hub", self.files[-1], ack, self.settings)
        self.present.append(Consumer(number, child))

    def leave(self, consumer: Consumer) -> None:
        """Have it leave in order."""
        consumer.await_joined()
        self.present.remove(consumer)
        cut_short = Incident(consumer.number, Blow.CUT_SHORT, time.monotonic_ns())
        os.kill(consumer.child.pid, signal.SIGTERM)
        self._bury(consumer, 0)
        if time.monotonic_ns() - cut_short.start_ns > LEAVE_NS:
            self.incidents.append(cut_short)
        self.left += 1

    def kill(self, consumer: Consumer) -> None:
        """`kill -9`."""
        self.present.remove(consumer)
        self.incidents.append(Incident(consumer.number, Blow.KILLED, time.monotonic_ns()))
        os.kill(consumer.child.pid, signal.SIGKILL)
        self._bury(consumer, -signal.SIGKILL)

    def pause(self, consumer: Consumer) -> None:
        """Stop it for a while."""
        consumer.paused = Incident(consumer.number, Blow.PAUSED, time.monotonic_ns())
        consumer.continues_at = time.monotonic() + self.chance.uniform(*self.pause_s)
        self.incidents.append(consumer.paused)
        stop(consumer.child.pid)

    def resume(self, now: float) -> None:
        """Continue those that were stopped for long enough."""
        for consumer in self.present:
            if consumer.paused is not None and consumer.continues_at <= now:
                os.kill(consumer.child.pid, signal.SIGCONT)
                consumer.paused.end_ns = time.monotonic_ns()
                consumer.paused = None

    def strike(self, hub: tailrace.Hub, least: int, most: int) -> None:
        """Do something to somebody: every other time to whoever leads."""
        self.resume(time.monotonic())
        awake = [consumer for consumer in self.present if consumer.paused is None]
        deeds: list[Callable[[Consumer], None]] = []
        if len(awake) > least:
            deeds += [self.kill, self.kill, self.pause, self.pause, self.leave]
        if len(self.present) < most:
            deeds += [lambda _: self.join()] * 3
        deed, victim = self.chance.choice(deeds), self.chance.choice(awake)
        leader = self._leader(hub, awake) if self.chance.random() < 0.5 else None
        if leader is not None and deed in (self.kill, self.pause, self.leave):
            victim = leader
            self.terms_ended += 1
        deed(victim)

    def scale(self, topic: tailrace.Topic[bytes], partitions: int) -> None:
        """Scale the topic, whoever is paused."""

        def attempt(partitions: int) -> None:
            self.resume(time.monotonic())
            topic.scale(partitions)

        patiently(attempt, partitions)

    def end(self) -> None:
        """Everybody goes on, and leaves in order."""
        self.resume(float("inf"))
        for consumer in list(self.present):
            self.leave(consumer)

    def abandon(self) -> None:
        """Whatever happened, no process stays."""
        for consumer in self.present:
            with suppress(ProcessLookupError):
                os.kill(consumer.child.pid, signal.SIGKILL)

    def _leader(self, hub: tailrace.Hub, among: Sequence[Consumer]) -> Consumer | None:
        leader = hub.group(GROUP).describe().leader
        led_by = [c for c in among if leader is not None and f" {c.child.pid} " in leader]
        return led_by[0] if led_by else None

    def _bury(self, consumer: Consumer, expected: int) -> None:
        list(consumer.child.rest())
        code = consumer.child.exit_code
        assert code == expected, f"consumer {consumer.number} ended with {code}"
