"""The directories that executors of a cluster must share with the driver, by writer."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace import writers
from tailrace.testing import MemoryBackend
from tailrace.writers import LocalSink, Writer

HUB = tailrace.Hub.from_backend(MemoryBackend())


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        (writers.file("/data/out"), LocalSink("/data/out")),
        (writers.parquet("file:///data/out"), LocalSink("/data/out")),
        (writers.sql("sqlite:////data/crm.db"), LocalSink("/data", one_host=True)),
        (writers.sql("sqlite:///file:/data/crm.db?uri=true"), LocalSink("/data", one_host=True)),
        (writers.sql("postgresql://u@h/crm"), None),
        (writers.topic("orders", hub="/data/hub"), LocalSink("/data/hub", one_host=True)),
        (writers.spark("jdbc", {"url": "jdbc:x"}), None),
        (writers.spark("json", {"path": "s3a://bucket/out"}), None),
    ],
)
def test_a_sink_on_a_disk_names_its_directory(writer: Writer, expected: LocalSink | None) -> None:
    assert writer.local_sink(HUB) == expected


def test_a_spark_sink_on_a_disk_is_written_by_executors_only(tmp_path: Path) -> None:
    writer = writers.spark("json", {"path": str(tmp_path / "lake" / "out")})
    assert writer.local_sink(HUB) == LocalSink(str(tmp_path / "lake"), executors_only=True)


def test_a_topic_of_the_pipelines_own_hub_is_in_its_absolute_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tailrace.open("data") as hub:
        found = writers.topic("orders").local_sink(hub)
    assert found == LocalSink(str(tmp_path / "data"), one_host=True)
