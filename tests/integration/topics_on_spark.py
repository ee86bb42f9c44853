"""Topics as Spark reads them, for the tests of the Spark data source."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tailrace


def read(spark: SparkSession, hub: tailrace.Hub, topics: str, **options: object) -> DataFrame:
    """Topics as a batch."""
    texts = {name: str(value) for name, value in options.items()}
    reader = spark.read.format("tailrace").option("hub", hub.backend.name).options(**texts)
    return reader.option("subscribe", topics).load()


def stream(spark: SparkSession, hub: tailrace.Hub, topics: str, **options: object) -> DataFrame:
    """Topics as a stream, from the first record on."""
    given = {"hub": hub.backend.name, "subscribe": topics, "startingOffsets": "earliest"}
    texts = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("tailrace").options(**given | texts).load()


def numbers(count: int, first: int = 0, keys: int = 11) -> list[tuple[str, bytes]]:
    """Messages to push: numbers, of a few keys."""
    return [(f"c{n % keys}", b"%d" % n) for n in range(first, first + count)]


def values(frame: DataFrame) -> list[Any]:
    """The values of all rows."""
    return [row["value"] for row in frame.select("value").collect()]
