"""A quick benchmark of this machine: pushes and reads per second on the disk of the hub.

It uses a temporary directory beside the hub. Each row is measured for the same time, so the whole
takes a few seconds. For comparisons, run it more than once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.hub.topic import Topic
from tailrace.settings import HubSettings

VALUE_BYTES: Final = 100
ROW_SECONDS: Final = 0.5
KEYS: Final = 1000
PARTITIONS: Final = 4

_VALUE: Final = b"v" * VALUE_BYTES
_BATCH: Final = 1000
_COLUMN_ROWS: Final = 10_000
_WRITE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row: the number of `unit` in a number of seconds, and the rates."""

    name: str
    unit: str
    count: int
    seconds: float
    per_second: float
    bytes_per_second: float

    @classmethod
    def of(cls, name: str, unit: str, count: int, size_bytes: int, seconds: float) -> Measurement:
        """Return a row with its rates."""
        return cls(name, unit, count, seconds, count / seconds, size_bytes / seconds)


def bench(directory: Path, seconds: float = ROW_SECONDS) -> Iterator[Measurement]:
    """Yield measurements in a temporary directory below `directory`, each of about `seconds`."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="tailrace-bench-") as scratch:
        with Path(scratch, "raw").open("wb", buffering=0) as file:
            yield _measure("disk: write and sync 1 MiB", "writes", _disk(file), seconds)
        for sync in ("batch", "none"):
            with open_hub(Path(scratch, sync), sync=sync, settings=HubSettings()) as hub:
                yield from _bench_hub(hub, sync, seconds)


def _bench_hub(hub: Hub, sync: str, seconds: float) -> Iterator[Measurement]:
    topic = hub.create_topic("bench", bytes, partitions=PARTITIONS)
    name = "synced" if sync == "batch" else "not synced"
    yield _measure(f"push, {name}", "messages", _push(topic), seconds)
    yield _measure(f"push_many of {_BATCH:,}, {name}", "messages", _push_many(topic), seconds)
    yield _pipelined(topic, f"pipelined producer, {name}", seconds)
    yield _measure(f"append columns, {name}", "messages", _append(topic), seconds)
    if sync == "none":
        yield _measure("read columns", "messages", _columns(topic), seconds)
        yield _measure("read messages", "messages", _messages(topic), seconds)


Step = Callable[[], tuple[int, int]]
"""Does some work. Returns the number of things done, and their bytes."""


def _measure(name: str, unit: str, step: Step, seconds: float) -> Measurement:
    count = size = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds or not count:
        done, done_bytes = step()
        count += done
        size += done_bytes
    return Measurement.of(name, unit, count, size, elapsed)


def _disk(file: FileIO) -> Step:
    block = bytes(_WRITE_BYTES)

    def step() -> tuple[int, int]:
        file.write(block)
        os.fdatasync(file.fileno())
        return 1, _WRITE_BYTES

    return step


def _push(topic: Topic[bytes]) -> Step:
    def step() -> tuple[int, int]:
        topic.push(_VALUE, key="c7")
        return 1, VALUE_BYTES

    return step


def _push_many(topic: Topic[bytes]) -> Step:
    messages = [(f"c{i % KEYS}", _VALUE) for i in range(_BATCH)]

    def step() -> tuple[int, int]:
        topic.push_many(messages)
        return _BATCH, _BATCH * VALUE_BYTES

    return step


def _pipelined(topic: Topic[bytes], name: str, seconds: float) -> Measurement:
    keys = [f"c{i}" for i in range(KEYS)]

    count = 0
    with topic.producer() as producer:
        started = time.perf_counter()
        while time.perf_counter() - started < seconds or not count:
            for key in keys:
                producer.push(_VALUE, key=key)
            count += KEYS
        producer.flush()
        elapsed = time.perf_counter() - started
    return Measurement.of(name, "messages", count, count * VALUE_BYTES, elapsed)


def _append(topic: Topic[bytes]) -> Step:
    keys = [f"c{i % KEYS}".encode() for i in range(_COLUMN_ROWS)]
    batch = pa.RecordBatch.from_pydict({"key": keys, "value": [_VALUE] * _COLUMN_ROWS})

    def step() -> tuple[int, int]:
        topic.append(batch)
        return _COLUMN_ROWS, _COLUMN_ROWS * VALUE_BYTES

    return step


def _columns(topic: Topic[bytes]) -> Step:
    return _read_all(topic, lambda _partition, records: int(records.num_rows))


def _messages(topic: Topic[bytes]) -> Step:
    return _read_all(topic, lambda partition, records: len(topic.messages(partition, records)))


def _read_all(topic: Topic[bytes], work: Callable[[Any, pa.RecordBatch], int]) -> Step:
    """Read the topic again and again, one poll per step."""
    reader = topic.reader()

    def step() -> tuple[int, int]:
        nonlocal reader
        reads = reader.poll()
        if not reads:
            reader = topic.reader()
        count = sum(work(where, records) for where, records in reads)
        return count, count * VALUE_BYTES

    return step
