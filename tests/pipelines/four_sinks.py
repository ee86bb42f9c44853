"""A pipeline into four sinks at once, as a program that a test can kill: see `main`."""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.pipeline.writer import Writer
from tests.pipelines.counting import CountingReader

SINKS = ("parquet", "sqlite", "postgres", "topic")


def pipeline(directory: Path, postgres_url: str, rows: int, engine: str) -> tailrace.Pipeline:
    """Numbers, each with its double, into all four, in small plans."""
    made = tailrace.Pipeline("lake", CountingReader(rows, batch=2000), progress_interval="100ms")
    url = f"sqlite:///{directory / 'sink.db'}"
    sinks: dict[str, Writer] = {
        "parquet": writers.parquet(str(directory / "parquet")),
        "sqlite": writers.sql(url),
        "postgres": writers.sql(postgres_url),
        "topic": writers.topic("copies"),
    }
    functions = [fn.rename({"n": "number"}), fn.python(doubled)]
    for name, writer in sinks.items():
        made.write(
            name, writer, functions=functions, engine=engine, batch_rows=max(1000, rows // 8)
        )
    return made


def doubled(document: dict[str, int]) -> dict[str, int]:
    """A user's own function."""
    return {**document, "double": 2 * document["number"]}


def seen(directory: Path, postgres_url: str) -> dict[str, Counter[tuple[Any, Any]]]:
    """What each sink holds, read without Tailrace where that can be."""
    found = {}
    table = pyarrow.dataset.dataset(directory / "parquet", format="parquet").to_table()
    found["parquet"] = Counter(
        zip(table["number"].to_pylist(), table["double"].to_pylist(), strict=True)
    )
    query = "SELECT number, double FROM numbers"
    with sqlite3.connect(directory / "sink.db") as database:
        found["sqlite"] = Counter(database.execute(query).fetchall())
    with psycopg.connect(postgres_url) as connection:
        found["postgres"] = Counter(connection.execute(query).fetchall())
    with tailrace.open(directory / "hub") as hub:
        topic = hub.topic("copies")
        reader = topic.reader()
        messages: Counter[tuple[Any, Any]] = Counter()
        while reads := reader.poll():
            for partition, records in reads:
                for message in topic.messages(partition, records):
                    if message.mode is not tailrace.Mode.COMPLETE:
                        messages[message.value["number"], message.value["double"]] += 1
        found["topic"] = messages
    return found


def main(directory: str, postgres_url: str, rows: str, engine: str) -> None:
    """Run it once, to the end of what is there."""
    with tailrace.open(Path(directory, "hub")) as hub:
        hub.create_topic("copies", partitions=1, exist_ok=True)
        pipeline(Path(directory), postgres_url, int(rows), engine).run(hub, once=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
