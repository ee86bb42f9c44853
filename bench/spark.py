"""Spark: a topic compared with the same rows in Parquet and Kafka, and the cost of a micro-batch.

All run in one Spark session on two cores, one after the other.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import tailrace
import tailrace.spark
from bench import payloads
from bench.measure import OURS, Rates, Scale, Timer, Turn, say, take_turns
from bench.peers import jars, kafka
from bench.peers.jars import Unavailable
from bench.peers.kafka import Kafka
from bench.report import Goal, Row, Sense, against, figures_of
from tailrace.spark.frames.native import SWITCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 8_000
VALUE_BYTES = 100
PARTITIONS = 4
SOURCE_WITHOUT_JAR = "tailrace without the jar"
READ = "tailrace.spark.read without the jar"
NATIVE = "tailrace.spark.read"
KAFKA = "Spark's Kafka source"
PARQUET = "Spark's Parquet source"
RATE = "Spark's rate source"
WARM_BATCHES = 10
BATCHES = 40
LONG_BATCHES = 200
DEADLINE_S = 600

READ_REASON = (
    "Java makes rows of the columns that Python sends: a job that only sends columns and reads"
    " nothing takes as long as the Parquet source takes for all of its work"
)
NATIVE_REASON = (
    "two thirds of the samples of a task are in the reader, which decodes records and makes rows;"
    " the rest is Spark's, to count and pass them on"
)
BATCH_REASON = "nearly all of it is what Spark takes to run any task in Python"


def rows(scale: Scale) -> list[Row]:
    """Measure the Spark source. Needs `pip install 'tailrace[spark]'`."""
    from tailrace.spark.session import start

    with tempfile.TemporaryDirectory(prefix="tailrace-bench-spark-") as directory:
        place, log_file = Path(directory), Path(directory, "spark.log")
        try:
            options = {"spark.jars": ",".join(map(str, jars.fetch("spark-kafka").glob("*.jar")))}
            missing = ""
        except Unavailable as reason:
            options, missing = {}, str(reason)
        spark = start("tailrace-bench", master="local[2]", log_file=log_file, options=options)
        try:
            found = [_read(spark, scale, place, missing), _micro_batch(spark, scale, place)]
            return [*found, _memory(spark, place)]
        finally:
            spark.stop()


def _read(spark: SparkSession, scale: Scale, directory: Path, missing: str) -> Row:
    """Measure reads. `missing` is the reason why this Spark has no Kafka source."""
    work = "Spark reads a topic, 100 B, all columns"
    reading = _Reading(spark, scale.count(250))
    contenders: dict[str, Turn] = {
        OURS: reading.source,
        SOURCE_WITHOUT_JAR: reading.source_without_jar,
        READ: reading.read_without_jar,
        NATIVE: reading.native,
        PARQUET: reading.parquet,
    }
    with ExitStack() as stack:
        try:
            if not missing:
                server = stack.enter_context(kafka.opened(directory))
                contenders[KAFKA] = reading.kafka(server)
        except Unavailable as reason:
            missing = str(reason)
        rates = take_turns(work, contenders, scale.rounds)
    goals = [
        against(rates, PARQUET, 0.65, reason=NATIVE_REASON),
        _against(rates, READ, PARQUET, 0.85, READ_REASON),
        _against(rates, NATIVE, PARQUET, 1.5, NATIVE_REASON),
    ]
    if KAFKA in contenders:
        goals.append(against(rates, KAFKA, 1.0, reason=NATIVE_REASON))
        goals.append(_against(rates, NATIVE, KAFKA, 5.0, NATIVE_REASON))
    absent = (f"{KAFKA}: {missing}",) if missing else ()
    return Row(work, figures_of(rates, "rows"), tuple(goals), absent)


def _against(rates: Rates, name: str, other: str, wanted: float, reason: str) -> Goal:
    return Goal(f"{name} against {other}", rates.ratio(name, other), wanted, reason=reason)


class _Reading:
    """The turns: each writes so many batches first, and then lets Spark read all of them twice.

    Only the second reading is timed: by then Java has compiled what it runs, in both.
    """

    def __init__(self, spark: SparkSession, batches: int) -> None:
        self._spark = spark
        self._batches = batches

    def source(self, directory: Path, timer: Timer) -> int:
        frame = self._loaded(directory)
        return self._time(lambda: frame, timer)

    def source_without_jar(self, directory: Path, timer: Timer) -> int:
        with self._without_jar():
            return self.source(directory, timer)

    def read_without_jar(self, directory: Path, timer: Timer) -> int:
        with self._without_jar():
            return self.native(directory, timer)

    def native(self, directory: Path, timer: Timer) -> int:
        hub = self._topic(directory)
        return self._time(lambda: tailrace.spark.read(self._spark, "log", hub=hub), timer)

    def parquet(self, directory: Path, timer: Timer) -> int:
        path = str(directory / "parquet")
        self._loaded(directory).write.parquet(path)
        frame = self._spark.read.parquet(path)
        return self._time(lambda: frame, timer)

    def kafka(self, server: Kafka) -> Turn:
        """Turns that read the same rows from Kafka, where they were written before."""
        batch = payloads.columns(BATCH, VALUE_BYTES)
        topic = kafka.fill(server, batch, self._batches, PARTITIONS)
        options = {"kafka.bootstrap.servers": server.address, "subscribe": topic}
        source = self._spark.read.format("kafka").options(**options)
        frame = source.load()
        return lambda _, timer: self._time(lambda: frame, timer)

    @contextmanager
    def _without_jar(self) -> Iterator[None]:
        """Let Python read in the block, as in a session that does not have the jar."""
        self._spark.conf.set(SWITCH, "false")
        try:
            yield
        finally:
            self._spark.conf.unset(SWITCH)

    def _topic(self, directory: Path) -> str:
        path = str(directory / "hub")
        with tailrace.open(path, sync="none") as hub:
            topic = hub.create_topic("log", bytes, partitions=PARTITIONS)
            batch = payloads.columns(BATCH, VALUE_BYTES)
            for _ in range(self._batches):
                topic.append(batch)
        return path

    def _loaded(self, directory: Path) -> DataFrame:
        hub = self._topic(directory)
        return self._spark.read.format("tailrace").options(hub=hub, subscribe="log").load()

    def _time(self, planned: Callable[[], DataFrame], timer: Timer) -> int:
        """Read all rows twice; time the second reading, from the planning of the ranges on."""
        planned().write.format("noop").mode("overwrite").save()
        with timer.running():
            planned().write.format("noop").mode("overwrite").save()
        return self._batches * BATCH


def _micro_batch(spark: SparkSession, scale: Scale, directory: Path) -> Row:
    """Measure the smallest micro-batch of both sources: one row, in one task."""
    work = "micro-batch of one row"
    sources: Mapping[str, Callable[[], DataFrame]] = {
        OURS: lambda: _one_by_one(spark, directory / "hub"),
        RATE: lambda: (
            spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1)
        ).load(),
    }
    times: dict[str, list[float]] = {name: [] for name in sources}
    for number in range(scale.rounds + 1):
        for name, frame in sources.items():
            say(
                f"{work}: {name}, {f'round {number} of {scale.rounds}' if number else 'warming up'}"
            )
            with _Query(frame(), directory) as query:
                took_ms = query.run_until(BATCHES)
            if number:
                times[name].append(took_ms)
    ratios = [ours / theirs for ours, theirs in zip(times[OURS], times[RATE], strict=True)]
    goal = Goal(f"against {RATE}", median(ratios), 1.5, Sense.AT_MOST, reason=BATCH_REASON)
    return Row(
        work, tuple(f"{name} {median(each):.0f} ms" for name, each in times.items()), (goal,)
    )


def _memory(spark: SparkSession, directory: Path) -> Row:
    work = f"memory of the driver, batch {LONG_BATCHES} against batch {LONG_BATCHES // 4}"
    say(work)
    with _Query(_one_by_one(spark, directory / "hub"), directory) as query:
        query.run_until(LONG_BATCHES // 4)
        before = _driver_bytes(spark)
        query.run_until(LONG_BATCHES)
        after = _driver_bytes(spark)
    figures = tuple(
        f"{name} {before[name] / 1e6:.1f} MB, then {after[name] / 1e6:.1f} MB" for name in before
    )
    goals = (Goal(name, after[name] / before[name], 1.1, Sense.AT_MOST) for name in before)
    return Row(work, figures, tuple(goals))


def _one_by_one(spark: SparkSession, path: Path) -> DataFrame:
    with tailrace.open(path, sync="none") as hub:
        topic = hub.create_topic("log", bytes, partitions=1, exist_ok=True)
        topic.push_many([("c7", b"x")] * (LONG_BATCHES + BATCHES))
    options = {"hub": str(path), "subscribe": "log", "startingOffsets": "earliest"}
    source = spark.readStream.format("tailrace").options(**options)
    return source.option("maxOffsetsPerTrigger", "1").load()


class _Query:
    """A query that discards its rows, with its own checkpoint."""

    def __init__(self, frame: DataFrame, directory: Path) -> None:
        self._checkpoint = tempfile.mkdtemp(dir=directory)
        self._frame = frame

    def __enter__(self) -> _Query:
        writing = self._frame.writeStream.format("noop")
        self._query: Any = writing.option("checkpointLocation", self._checkpoint).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()

    def run_until(self, batches: int) -> float:
        """Wait for a number of batches, and return the milliseconds of one of the last."""
        deadline = time.monotonic() + DEADLINE_S
        while (self._query.lastProgress or {"batchId": -1})["batchId"] < batches:
            if self._query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the query did not get on: {self._query.exception()}")
            time.sleep(0.01)
        recent = [p for p in self._query.recentProgress if p["batchId"] >= WARM_BATCHES]
        return median(float(progress["durationMs"]["triggerExecution"]) for progress in recent)


def _driver_bytes(spark: SparkSession) -> dict[str, float]:
    """Return the heap of Spark's Java after garbage collection, and the memory of the source."""
    jvm: Any = spark._jvm
    for _ in range(3):
        jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = float(runtime.totalMemory() - runtime.freeMemory())
    gateway: Any = spark.sparkContext._gateway
    return {"Java's heap": heap, "Python of the source": _source_bytes(gateway.proc.pid)}


def _source_bytes(java: int) -> float:
    """Return the resident memory of the Python process that plans the stream."""
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes()
            status = (process / "status").read_text()
        except OSError:
            continue
        if b"python_streaming_source_runner" in command and f"\nPPid:\t{java}\n" in status:
            found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
            return float(found[1]) * 1024 if found else 0.0
    raise RuntimeError("no process plans the reading of a stream")
