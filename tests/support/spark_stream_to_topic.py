"""A stream of numbers into a topic, as a program that tests kill and start again.

``python -m tests.support.spark_stream_to_topic MASTER DIRECTORY ROWS`` ends when the topic
`numbers` of the hub in the directory has that many rows and the file `enough` exists. A row is a
number, in 600 bytes, so tasks stage them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tailrace

TOPIC = "numbers"
BATCH_ROWS = 10_000
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "30",
    "spark.sql.shuffle.partitions": "2",
    "spark.cores.max": "2",
}


def main(master: str, directory: Path, rows: int) -> None:
    """Run the stream until the topic has the rows and the test has had enough."""
    builder = SparkSession.builder.master(master).appName("numbers")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    query = _start(spark, directory)
    with tailrace.open(directory / "hub") as hub:
        while stored(hub) < rows or not (directory / "enough").exists():
            if query.awaitTermination(1):
                raise RuntimeError("the query ended before all rows were written")
    query.stop()
    spark.stop()


def stored(hub: tailrace.Hub) -> int:
    """Return the number of rows in the topic."""
    return sum(hub.topic(TOPIC).storage_topics[0].ends)


def _start(spark: SparkSession, directory: Path) -> StreamingQuery:
    numbers = spark.readStream.format("rate-micro-batch").option("numPartitions", 4)
    rows = numbers.option("rowsPerBatch", BATCH_ROWS).load()
    messages = rows.selectExpr(
        "cast(value % 97 as string) AS key", "lpad(cast(value as string), 600, '0') AS value"
    )
    return (
        messages.writeStream.format("tailrace")
        .queryName("numbers")
        .option("hub", str(directory / "hub"))
        .option("topic", TOPIC)
        .option("staging", str(directory / "staging"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
