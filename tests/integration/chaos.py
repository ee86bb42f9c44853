"""Processes that push to and consume a topic while they are killed, paused and replaced."""

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
from tailrace.delivery.delivery import Delivery
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.consumer.options import Ack
from tests.support.delivery_log import TOPIC, DeliveryLog, Fault, Incident, Line
from tests.support.processes import Child, Report, stop

GROUP = "billing"
BATCH = 64
KEYS = 200
LEAVE_NS = 2_000_000_000
"""A consumer that cannot commit for so long leaves without: another is paused in a commit."""
WAIT_S = 60.0
POLL_S = 0.1
"""How often a wait checks for paused consumers that are to continue."""

T = TypeVar("T")
R = TypeVar("R")

_VALUE = struct.Struct("<II")


def push(report: Report, directory: Path, file: Path, count: int, seconds: float) -> None:
    """Push `count` messages with random keys, in bursts over `seconds`, and keep the receipts."""
    lines, chance = DeliveryLog(file), random.Random(count)
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
            receipts = retrying(topic.push_many, messages)
            lines.write(
                [
                    Line(time.monotonic_ns(), *each, r.storage, r.partition, r.offset, marked=False)
                    for each, r in zip(burst, receipts, strict=True)
                ]
            )
            pushed += len(burst)
            time.sleep(max(0.0, begin + seconds * pushed / count - time.monotonic()))
    report("pushed")


def retrying(work: Callable[[T], R], what: T) -> R:
    """Call `work`, and retry while a process that is paused in a commit blocks all others."""
    while True:
        try:
            return work(what)
        except tailrace.BackendUnavailable as error:
            if not error.retryable:
                raise


def consume(
    report: Report, directory: Path, file: Path, ack: Ack, settings: tailrace.HubSettings
) -> None:
    """Consume until SIGTERM, and log every message before it is acknowledged."""
    lines, leaving = DeliveryLog(file), threading.Event()
    with retrying(lambda path: tailrace.open(path, settings=settings), directory) as hub:
        idle = None if ack == "auto" else "20ms"
        consumer = hub.topic(TOPIC, bytes).tail(group=GROUP, ack=ack, idle_timeout=idle)

        def leave(*_: object) -> None:
            leaving.set()
            consumer.shutdown()

        signal.signal(signal.SIGTERM, leave)
        with consumer:
            report("joined")
            while not leaving.is_set():
                (_one_by_one if ack == "auto" else _in_batches)(consumer, lines)


def _one_by_one(consumer: Consumer[bytes], lines: DeliveryLog) -> None:
    for delivery in consumer:
        lines.write([line_of(delivery)])


def _in_batches(consumer: Consumer[bytes], lines: DeliveryLog) -> None:
    batch: list[Delivery[bytes]] = []
    seen: list[Line] = []

    def done() -> None:
        lines.write(seen)
        for each in batch:
            each.ack()
        batch.clear()
        seen.clear()

    for delivery in consumer:
        seen.append(line_of(delivery))
        batch.append(delivery)
        if len(batch) == BATCH:
            done()
    done()


def line_of(delivery: Delivery[bytes]) -> Line:
    """Return the line of a delivery that was received now."""
    key, number = _VALUE.unpack(delivery.data)
    position = delivery.storage, delivery.partition, delivery.offset
    return Line(time.monotonic_ns(), key, number, *position, marked=delivery.redelivered)


@dataclass(slots=True)
class ConsumerProcess:
    """A process that consumes, and its state."""

    number: int
    child: Child
    joined: bool = False
    paused: Incident | None = None
    continues_at: float = 0.0

    def await_joined(self, within_s: float = WAIT_S) -> None:
        """Return when the consumer has joined."""
        if not self.joined:
            assert self.child.next_report(within_s) == "joined"
            self.joined = True

    def await_end(self, within_s: float) -> None:
        """Return when the process has ended."""
        list(self.child.rest(within_s))


@dataclass(slots=True)
class Chaos:
    """Consumers of a hub: those that run now, and all incidents so far."""

    directory: Path
    settings: tailrace.HubSettings
    seed: int
    pause_s: tuple[float, float]
    chance: random.Random = field(init=False)
    present: list[ConsumerProcess] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    terms_ended: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def join(self) -> None:
        """Start one more consumer. Every third one acknowledges manually."""
        number = len(self.files)
        self.files.append(self.directory / f"seen-{number}")
        ack: Ack = "manual" if number % 3 == 2 else "auto"
        child = Child(consume, self.directory / "hub", self.files[-1], ack, self.settings)
        self.present.append(ConsumerProcess(number, child))

    def leave(self, consumer: ConsumerProcess) -> None:
        """Let a consumer leave in order."""
        self._resuming(consumer.await_joined)
        self.present.remove(consumer)
        cut_short = Incident(consumer.number, Fault.CUT_SHORT, time.monotonic_ns())
        os.kill(consumer.child.pid, signal.SIGTERM)
        self._await_exit(consumer, 0)
        if time.monotonic_ns() - cut_short.start_ns > LEAVE_NS:
            self.incidents.append(cut_short)
        self.left += 1

    def kill(self, consumer: ConsumerProcess) -> None:
        """Kill a consumer with SIGKILL."""
        self.present.remove(consumer)
        self.incidents.append(Incident(consumer.number, Fault.KILLED, time.monotonic_ns()))
        os.kill(consumer.child.pid, signal.SIGKILL)
        self._await_exit(consumer, -signal.SIGKILL)

    def pause(self, consumer: ConsumerProcess) -> None:
        """Stop a consumer with SIGSTOP for a random time."""
        consumer.paused = Incident(consumer.number, Fault.PAUSED, time.monotonic_ns())
        consumer.continues_at = time.monotonic() + self.chance.uniform(*self.pause_s)
        self.incidents.append(consumer.paused)
        stop(consumer.child.pid)

    def resume(self, now: float) -> None:
        """Continue consumers that were stopped for long enough."""
        for consumer in self.present:
            if consumer.paused is not None and consumer.continues_at <= now:
                os.kill(consumer.child.pid, signal.SIGCONT)
                consumer.paused.end_ns = time.monotonic_ns()
                consumer.paused = None

    def inject_fault(self, hub: tailrace.Hub, least: int, most: int) -> None:
        """Apply a random fault to a random consumer; every other time to the leader."""
        self.resume(time.monotonic())
        awake = [consumer for consumer in self.present if consumer.paused is None]
        actions: list[Callable[[ConsumerProcess], None]] = []
        if len(awake) > least:
            actions += [self.kill, self.kill, self.pause, self.pause, self.leave]
        if len(self.present) < most:
            actions += [lambda _: self.join()] * 3
        action, victim = self.chance.choice(actions), self.chance.choice(awake)
        leader = self._leader(hub, awake) if self.chance.random() < 0.5 else None
        if leader is not None and action in (self.kill, self.pause, self.leave):
            victim = leader
            self.terms_ended += 1
        action(victim)

    def scale(self, topic: tailrace.Topic[bytes], partitions: int) -> None:
        """Scale the topic, also while consumers are paused."""

        def attempt(partitions: int) -> None:
            self.resume(time.monotonic())
            topic.scale(partitions)

        retrying(attempt, partitions)

    def end(self) -> None:
        """Resume all consumers, and let them leave in order."""
        self.resume(float("inf"))
        for consumer in list(self.present):
            self.leave(consumer)

    def abandon(self) -> None:
        """Kill all consumers."""
        for consumer in self.present:
            with suppress(ProcessLookupError):
                os.kill(consumer.child.pid, signal.SIGKILL)

    def _leader(
        self, hub: tailrace.Hub, among: Sequence[ConsumerProcess]
    ) -> ConsumerProcess | None:
        leader = hub.group(GROUP).describe().leader
        led_by = [c for c in among if leader is not None and f" {c.child.pid} " in leader]
        return led_by[0] if led_by else None

    def _resuming(self, wait: Callable[[float], None]) -> None:
        """Wait, and meanwhile continue consumers that were paused in a commit, for which all others
        wait."""
        deadline = time.monotonic() + WAIT_S
        while True:
            self.resume(time.monotonic())
            try:
                return wait(POLL_S)
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise

    def _await_exit(self, consumer: ConsumerProcess, expected: int) -> None:
        self._resuming(consumer.await_end)
        code = consumer.child.exit_code
        assert code == expected, f"consumer {consumer.number} ended with {code}"
