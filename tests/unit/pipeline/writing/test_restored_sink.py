"""A sink that was restored from a backup, over a commit log that was compacted since."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tailrace import functions as fn
from tailrace import writers
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import PipelineFailed
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub
from tailrace.message import Partition
from tailrace.operations.pipeline.interventions import ack
from tailrace.pipeline.pipeline import Pipeline
from tailrace.settings import HubSettings
from tailrace.topic.consumers import low_mark
from tests.support.pipelines.counting_reader import CountingReader

LOG = Partition("lake.commits", 0, 0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    settings = HubSettings(path=str(tmp_path / "hub"), segment_bytes=1 << 16)
    with open_hub(settings=settings) as hub:
        yield hub


def run(hub: Hub, tmp_path: Path, rows: int, **options: Any) -> None:
    lake = Pipeline("lake", CountingReader(rows))
    lake.write("crm", writers.sql(f"sqlite:///{tmp_path / 'crm.db'}"), engine="direct", **options)
    lake.run(hub, once=True)


def numbers(tmp_path: Path) -> list[int]:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        return sorted(n for (n,) in database.execute("SELECT n FROM numbers"))


def compact(hub: Hub) -> int:
    """Compact, and return the offset below which records were dropped."""
    backend = hub.backend
    assert isinstance(backend, EmbeddedBackend)
    assert backend.compact(LOG, partial(low_mark, backend, LOG)).rewritten
    return backend.log.whole_from(LOG)


def restored(tmp_path: Path) -> None:
    """Restore the database from its copy, without the files beside the lost one."""
    for file in tmp_path.glob("crm.db*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "crm.db")


def backed_up(tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "crm.db")) as database,
        closing(sqlite3.connect(tmp_path / "backup.db")) as backup,
    ):
        database.backup(backup)


def test_a_sink_that_lacks_compacted_records_is_an_error_that_names_them(
    hub: Hub, tmp_path: Path
) -> None:
    run(hub, tmp_path, 1000)
    backed_up(tmp_path)
    run(hub, tmp_path, 6000)
    whole_from = compact(hub)
    restored(tmp_path)
    lost = f"lake.commits/0.0@1000-{whole_from - 1}"
    for _ in range(2):
        with pytest.raises(
            PipelineFailed, match=f"the sink lacks {lost}, and compaction has removed"
        ):
            run(hub, tmp_path, 6000)
    assert numbers(tmp_path) == list(range(1000))

    ack(hub, "lake/crm", lost, "the backup is all there is")
    run(hub, tmp_path, 6000)
    assert numbers(tmp_path) == [*range(1000), *range(whole_from, 6000)]


def test_a_sink_that_lacks_records_of_the_log_gets_them_again(hub: Hub, tmp_path: Path) -> None:
    run(hub, tmp_path, 6000)
    backed_up(tmp_path)
    assert compact(hub) < 6000
    run(hub, tmp_path, 7000)
    restored(tmp_path)
    run(hub, tmp_path, 7000)
    assert numbers(tmp_path) == list(range(7000))


def test_a_writer_that_gets_no_rows_of_the_compacted_records_lacks_nothing(
    hub: Hub, tmp_path: Path
) -> None:
    functions = [fn.skip("n", ">=", 10)]
    run(hub, tmp_path, 6000, functions=functions)
    compact(hub)
    run(hub, tmp_path, 6500, functions=functions)
    assert numbers(tmp_path) == list(range(10))
