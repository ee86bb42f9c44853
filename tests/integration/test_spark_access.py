"""Tasks of Spark on hosts that do not see the hub, may not read it, or come after a compaction."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import tailrace
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.message import Partition
from tailrace.spark.batch import BatchReader
from tests.integration.topics_on_spark import read
from tests.support.processes import Child, Report
from tests.support.spark_errors import tailrace_message
from tests.support.stream_driver import SCHEMA
from tests.support.users import STRANGER, become, directory_for_all, needs_root

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.part("pipelines")]

HOST = socket.gethostname()
RECORDS = 40


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    """A topic of many small segments."""
    with make_hub(tmp_path) as made:
        yield made


def make_hub(directory: Path) -> tailrace.Hub:
    backend = EmbeddedBackend.open(directory / "hub", sync="none", segment_bytes=2000)
    hub = tailrace.Hub.from_backend(backend)
    orders = hub.create_topic("orders", bytes, partitions=1)
    for n in range(RECORDS):
        orders.push(bytes(200), key=f"c{n % 5}")
    return hub


def plan(hub: tailrace.Hub) -> tuple[BatchReader, list[InputPartition]]:
    reader = BatchReader({"hub": hub.backend.name, "subscribe": "orders"}, SCHEMA)
    return reader, reader.partitions()


def offsets(reader: BatchReader, tasks: list[InputPartition]) -> list[int]:
    return [offset for task in tasks for batch in reader.read(task) for offset in listed(batch)]


def listed(batch: Any) -> list[int]:
    """The offsets of a batch."""
    found: list[int] = batch["offset"].to_pylist()
    return found


def compact(hub: tailrace.Hub) -> None:
    backend: Any = hub.backend
    assert backend.compact(Partition("orders", 0, 0), lambda: RECORDS).rewritten


def test_a_host_that_does_not_see_the_hub_is_named(hub: tailrace.Hub, tmp_path: Path) -> None:
    reader, tasks = plan(hub)
    hub.close()
    (tmp_path / "hub").rename(tmp_path / "elsewhere")
    with pytest.raises(tailrace.ConfigError) as caught:
        offsets(reader, tasks)
    assert str(caught.value) == (
        f"host {HOST} does not see the hub {tmp_path / 'hub'} · make its directory visible under"
        " the same path on every host that runs executors, or run the executors on the hub's host"
    )


def _read_as_stranger(report: Report, pickled: bytes) -> None:
    become(STRANGER)
    try:
        report(offsets(*pickle.loads(pickled)))
    except tailrace.Error as error:
        report(str(error))


@needs_root
def test_a_user_who_may_not_read_the_hub_is_named() -> None:
    with directory_for_all() as directory, make_hub(directory) as hub:
        (directory / "hub").chmod(0o700)
        said = Child(_read_as_stranger, pickle.dumps(plan(hub))).next_report()
    assert said.startswith(f"user {STRANGER} on host {HOST} may not read {directory}/hub/")
    assert "give this user the right to read" in said


def test_files_that_a_compaction_replaced_are_looked_up_again(hub: tailrace.Hub) -> None:
    reader, tasks = plan(hub)
    before = offsets(reader, tasks)
    compact(hub)
    after = offsets(reader, tasks)
    assert len(before) == RECORDS
    assert after == offsets(*plan(hub))
    assert set(after) < set(before)


def test_a_compaction_during_a_task_drops_and_repeats_nothing_else(hub: tailrace.Hub) -> None:
    reader, (task,) = plan(hub)
    batches = reader.read(task)
    found = listed(next(batches))
    compact(hub)
    kept = offsets(*plan(hub))
    for batch in batches:
        found += listed(batch)
    assert found == sorted(set(found))
    assert set(kept) <= set(found)


def test_a_lost_file_is_damage(hub: tailrace.Hub, tmp_path: Path) -> None:
    reader, tasks = plan(hub)
    min(tmp_path.rglob("*.log")).unlink()
    with pytest.raises(tailrace.CorruptBatch, match="the file is missing"):
        offsets(reader, tasks)


def test_a_dataframe_that_spark_planned_once_survives_a_compaction(
    spark: SparkSession, hub: tailrace.Hub, reader: str
) -> None:
    loaded = read(spark, hub, "orders", includeHeaders="true")
    # Of the first one the native reader makes columns, of the second one rows.
    frames = loaded.select("offset", "value", "headers"), loaded.select("value", "offset")
    before = [frame.collect() for frame in frames]
    compact(hub)
    for frame, rows in zip(frames, before, strict=True):
        after = frame.collect()
        assert 0 < len(after) < len(rows)
        assert set(after) <= set(rows)


def test_spark_reports_the_host_that_does_not_see_the_hub(
    spark: SparkSession, hub: tailrace.Hub, tmp_path: Path, reader: str
) -> None:
    frame = read(spark, hub, "orders").select("offset")
    frame.collect()
    hub.close()
    (tmp_path / "hub").rename(tmp_path / "elsewhere")
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert (tailrace_message(caught.value) or "").startswith(f"host {HOST} does not see the hub")
