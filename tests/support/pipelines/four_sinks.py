"""A pipeline into four sinks at once, as a program that a test can kill: see `main`."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset

import tailrace
from tailrace import functions as fn
from tailrace import writers
from tailrace.pipeline.writer import Writer
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.topics import all_messages

RELEASED = "released"
SINKS = ("parquet", "sqlite", "postgres", "topic")


def pipeline(
    directory: Path,
    postgres_url: str,
    rows: int,
    engine: str,
    chosen: Sequence[str] = SINKS,
    plans: int = 8,
) -> tailrace.Pipeline:
    """Return a pipeline of numbers, each with its double, into the sinks, in small plans.

    If the directory has a file RELEASED, rows from the number in it on wait until it is raised.
    """
    released = directory / RELEASED
    reader = CountingReader(
        rows, batch=2000, released_file=str(released) if released.exists() else ""
    )
    made = tailrace.Pipeline("lake", reader, progress_interval="100ms")
    url = f"sqlite:///{directory / 'sink.db'}"
    sinks: dict[str, Writer] = {
        "parquet": writers.parquet(str(directory / "parquet")),
        "sqlite": writers.sql(url),
        "postgres": writers.sql(postgres_url),
        "topic": writers.topic("copies"),
    }
    functions = [fn.rename({"n": "number"}), fn.python(doubled)]
    for name in chosen:
        made.write(
            name,
            sinks[name],
            functions=functions,
            engine=engine,
            batch_rows=max(1000, rows // plans),
        )
    return made


def doubled(document: dict[str, int]) -> dict[str, int]:
    """A user's own function."""
    return {**document, "double": 2 * document["number"]}


def seen(
    directory: Path, postgres_url: str, chosen: Sequence[str] = SINKS
) -> dict[str, Counter[tuple[Any, Any]]]:
    """Return the rows of each sink, read without Tailrace where possible."""
    query = "SELECT number, double FROM numbers"
    found: dict[str, Counter[tuple[Any, Any]]] = {}
    if "parquet" in chosen:
        table = pyarrow.dataset.dataset(directory / "parquet", format="parquet").to_table()
        found["parquet"] = Counter(
            zip(table["number"].to_pylist(), table["double"].to_pylist(), strict=True)
        )
    if "sqlite" in chosen:
        with sqlite3.connect(directory / "sink.db") as database:
            found["sqlite"] = Counter(database.execute(query).fetchall())
    if "postgres" in chosen:
        with psycopg.connect(postgres_url) as connection:
            found["postgres"] = Counter(connection.execute(query).fetchall())
    if "topic" in chosen:
        with tailrace.open(directory / "hub") as hub:
            topic = hub.topic("copies")
            found["topic"] = Counter(
                (message.value["number"], message.value["double"])
                for message in all_messages(topic)
            )
    return found


def main(
    directory: str,
    postgres_url: str,
    rows: str,
    engine: str,
    master: str = "local[*]",
    *chosen: str,
) -> None:
    """Run the pipeline once, and print how many rows each writer has delivered in this run."""
    with tailrace.open(Path(directory, "hub")) as hub:
        hub.create_topic("copies", partitions=1, exist_ok=True)
        plans = 8 if master.startswith("local") else 48
        made = pipeline(Path(directory), postgres_url, int(rows), engine, chosen or SINKS, plans)
        report = made.run(hub, once=True, master=master)
        print(json.dumps({each.name: each.rows for each in report.writers}))


if __name__ == "__main__":
    main(*sys.argv[1:])
