"""Pipelines whose source many tasks read: the run of the pipeline is one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Hub, InvalidName, Pipeline, RunOutcome, Source
from tailrace.pipeline.definition.settings import Reading
from tailrace.source.catalog import find_source
from tailrace.source.names import task_group
from tailrace.source.split_state import read_splits
from tailrace.testing import MemoryBackend
from tests.support.pipelines.recording_writer import delivered, deliveries
from tests.support.pipelines.running_pipeline import add
from tests.support.sources.split_reader import SplitReader
from tests.support.waiting import DEADLINE_S, until


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub.from_backend(MemoryBackend()) as hub:
        yield hub


def shared(reader: SplitReader, **settings: object) -> Pipeline:
    return Pipeline("lake", reader, reading=Reading.SHARED, **settings)  # type: ignore[arg-type]


def test_a_run_reads_as_the_only_task_and_delivers_every_row_once(hub: Hub, tmp_path: Path) -> None:
    lake = shared(SplitReader(("a", "b"), rows=8))
    path = add(lake, tmp_path, "out")
    report = lake.run(hub, once=True)
    assert (report.outcome, report.rows_read) == (RunOutcome.DONE, 16)
    assert delivered(path) == list(range(16))
    entry = find_source(hub.backend.store, "lake")
    assert entry is not None
    assert entry.of_pipeline
    assert task_group("lake") not in hub.groups()
    assert lake.run(hub, once=True).rows_read == 0


def test_another_task_reads_a_part_of_the_splits_into_the_log_of_the_pipeline(
    hub: Hub, tmp_path: Path
) -> None:
    rows = tmp_path / "rows"
    rows.write_text("5")
    lake = shared(SplitReader(rows_file=str(rows)))
    path = add(lake, tmp_path, "out")
    source = lake.source
    units: list[int] = []
    threads = [
        threading.Thread(target=lambda: lake.run(hub)),
        threading.Thread(target=lambda: source.run(hub, progress=lambda p: units.append(p.units))),
    ]
    for thread in threads:
        thread.start()
    until(lambda: 2 in units[-1:], "the other task owns no half of the splits")
    rows.write_text("20")
    until(lambda: len(delivered(path)) == 80, "rows are missing")
    assert source.stop()
    assert lake.stop()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sum(len(call) for call in deliveries(path)) == 80
    assert {state.rows for state in read_splits(hub.backend, "lake").states.values()} == {20}


def test_a_run_that_reads_alone_continues_where_the_tasks_stopped(hub: Hub, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_text("5")
    reader = SplitReader(rows_file=str(rows))
    together, alone = shared(reader), Pipeline("lake", reader)
    path = add(together, tmp_path, "out")
    alone.writers = together.writers
    assert together.run(hub, once=True).rows_read == 20
    rows.write_text("8")
    assert alone.run(hub, once=True).rows_read == 12
    rows.write_text("9")
    assert together.run(hub, once=True).rows_read == 4
    assert delivered(path) == list(range(36))


def test_the_reader_waits_for_a_slow_writer_and_stays_a_task(hub: Hub, tmp_path: Path) -> None:
    lake = shared(SplitReader(("a", "b"), rows=50, delay_s=0.05), log_bytes_max="1KiB")
    path = add(lake, tmp_path, "out", delay_s=0.3, batch_rows=20)
    blocked: set[str | None] = set()
    report = lake.run(hub, once=True, progress=lambda now: blocked.add(now.blocked_by))
    assert report.outcome is RunOutcome.DONE
    assert delivered(path) == list(range(100))
    assert blocked == {None, "lake/out"}


def test_a_source_and_a_pipeline_have_different_names(hub: Hub, tmp_path: Path) -> None:
    reader = SplitReader(("a",))
    Source("shop", reader).run(hub, once=True)
    for reading in Reading:
        shop = Pipeline("shop", reader, reading=reading)
        add(shop, tmp_path, f"shop-{reading}")
        with pytest.raises(InvalidName, match="there is a source 'shop'"):
            shop.run(hub, once=True)
    for name, reading in (("lake", Reading.ALONE), ("sea", Reading.SHARED)):
        made = Pipeline(name, reader, reading=reading)
        add(made, tmp_path, name)
        made.run(hub, once=True)
        with pytest.raises(InvalidName, match=f"there is a pipeline '{name}'"):
            Source(name, reader).run(hub, once=True)
    with pytest.raises(InvalidName, match="there is a source 'shop'"):
        hub.create_subscription("shop", topic="shop.commits")
