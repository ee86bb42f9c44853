"""A stream reader of the Spark data source, driven as Spark drives it, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

import tailrace
from tailrace.clock import Clock
from tailrace.spark.columns import spark_schema
from tailrace.spark.stream import Offset, StreamReader

SCHEMA: StructType = spark_schema(include_headers=False)
BATCHES_MAX = 1000


class Driver:
    """What Spark does with a reader: asks how far, plans, reads each task from what was pickled."""

    def __init__(self, hub: tailrace.Hub, **options: object) -> None:
        self.given = {
            "hub": hub.backend.name,
            "subscribe": "orders",
            "startingOffsets": "earliest",
        } | {name: str(value) for name, value in options.items()}
        if {"subscribePattern", "assign"} & set(options):
            del self.given["subscribe"]
        if "startingOffsetsByTimestamp" in options:
            del self.given["startingOffsets"]
        self.reader = StreamReader(self.given, SCHEMA)
        self.offset: Offset = self.reader.initialOffset()

    def restart(self, clock: Clock) -> None:
        """Start again from the same offsets, with another clock."""
        self.reader = StreamReader(self.given, SCHEMA, clock)

    def trigger(self) -> list[list[dict[str, Any]]] | None:
        """The rows of the next batch, task by task; None when there is nothing new."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if end == self.offset:
            return None
        tasks = self.reader.partitions(self.offset, end)
        self.offset = end
        reader = pickle.loads(pickle.dumps(self.reader))
        return [
            [row for batch in reader.read(pickle.loads(pickle.dumps(task))) for row in rows(batch)]
            for task in tasks
        ]

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """The rows of each batch until nothing new comes."""
        for _ in range(BATCHES_MAX):
            tasks = self.trigger()
            if tasks is None:
                return
            yield [row for task in tasks for row in task]
        pytest.fail("it does not end")

    def drain(self) -> list[dict[str, Any]]:
        """All rows until nothing new comes."""
        return [row for batch in self.batches() for row in batch]


def rows(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch, which has all columns."""
    assert batch.schema.names == SCHEMA.names
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def values(found: list[dict[str, Any]]) -> list[bytes]:
    """The values of rows."""
    return [row["value"] for row in found]


def numbers(count: int, first: int = 0) -> list[tuple[str, bytes]]:
    """Messages to push: numbers, of a few keys."""
    return [(f"c{n % 11}", b"%d" % n) for n in range(first, first + count)]
