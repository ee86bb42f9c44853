"""Durable single pushes by many threads, which share the syncs."""

from __future__ import annotations

import threading
from pathlib import Path
from statistics import median

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timer, Turn, take_turns
from bench.peers import raw
from bench.report import Goal, Row, figures_of, information
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.log.disk import Disk

THREADS = 64
VALUE_BYTES = 100
ONE_THREAD = "tailrace, one thread"
RAW_SYNCED = "write + fdatasync"


class CountingDisk(Disk):
    """The real disk, with a count of its syncs."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        """Sync a file, and count the sync."""
        self.syncs += 1
        super().sync(descriptor)


def rows(scale: Scale) -> list[Row]:
    """Measure durable single pushes."""
    work = "durable single pushes, 100 B, 64 threads, one partition"
    pushes = scale.count(200)
    shares: list[float] = []

    def ours(directory: Path, timer: Timer) -> int:
        disk = CountingDisk()
        backend = EmbeddedBackend.open(directory / "hub", sync="batch", disk=disk)
        with tailrace.Hub.from_backend(backend) as hub:
            topic = hub.create_topic("log", bytes, partitions=1)
            topic.push(b"first")
            before = disk.syncs
            with timer.running():
                _push_from_threads(topic, pushes)
            shares.append(THREADS * pushes / (disk.syncs - before))
        return THREADS * pushes

    rates = take_turns(
        work, {OURS: ours, ONE_THREAD: _alone(pushes), RAW_SYNCED: _raw(pushes)}, scale.rounds
    )
    goal = Goal("pushes a sync of the segment", median(shares), 32, unit="")
    figures = figures_of(rates, "pushes")
    return [Row(work, (*figures, *information(rates, ONE_THREAD, RAW_SYNCED)), (goal,))]


def _push_from_threads(topic: tailrace.Topic[bytes], pushes: int) -> None:
    value = bytes(VALUE_BYTES)

    def push() -> None:
        for _ in range(pushes):
            topic.push(value)

    threads = [threading.Thread(target=push) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _alone(pushes: int) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with tailrace.open(directory / "hub", sync="batch", settings=tailrace.HubSettings()) as hub:
            topic = hub.create_topic("log", bytes, partitions=1)
            topic.push(b"first")
            with timer.running():
                for _ in range(pushes):
                    topic.push(bytes(VALUE_BYTES))
        return pushes

    return turn


def _raw(pushes: int) -> Turn:
    [record] = payloads.struct_records(payloads.pairs(1, VALUE_BYTES), 0)

    def turn(directory: Path, timer: Timer) -> int:
        raw.write(directory, timer, [record] * pushes, sync=True)
        return pushes

    return turn
