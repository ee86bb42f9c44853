"""The third act: a pipeline writes growing files to Parquet, SQLite and a topic; one row is bad.

SQLite refuses the batch with the bad row, so that writer stops; the other writers finish. Then an
operator retries the batch one row at a time, up to the bad row, and acknowledges that row.
"""

from __future__ import annotations

import glob
import shlex
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import tailrace
from tailrace import readers, writers
from tailrace.demo.report import Row
from tailrace.demo.sales import SHOPS, Sales
from tailrace.demo.shops import open_shops
from tailrace.demo.sinks import DATABASE, FILES, PARQUET, TOPIC, sink_rows
from tailrace.demo.stage import Display, StageProgress
from tailrace.errors import PipelineFailed
from tailrace.message import Position
from tailrace.operations.pipeline.interventions import ack, retry_one_at_a_time
from tailrace.pipeline.definition.settings import Engine
from tailrace.pipeline.report import RunOutcome
from tailrace.pipeline.run import PipelineRun
from tailrace.pipeline.run_state import RunState
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterState
from tailrace.source.reader import Until

PIPELINE: Final = "shops"
SQLITE: Final = f"{PIPELINE}/sqlite"
REASON: Final = "a total below 0, corrected in the shop"

WITHOUT: Final = """\
Sales: one job writes each batch to Parquet, SQLite and the topic. It stops at the batch that SQLite
refuses, stops there again at every restart, and none of the three gets the later rows."""
"""How the last column of this act's rows is calculated."""

_TABLE: Final = """
CREATE TABLE sales (shop TEXT, number INTEGER, customer TEXT, total REAL CHECK (total >= 0))
"""
_BATCHES: Final = 50
_BATCH_ROWS_MIN: Final = 500
_POLL_S: Final = 0.1
_SECONDS_MAX: Final = 300.0


def set_up(directory: Path) -> None:
    """Make the directory of the files, and a database whose table has a constraint.

    The table has no key, so a row that is written twice is there twice.
    """
    (directory / FILES).mkdir()
    for shop in SHOPS:
        (directory / FILES / f"{shop}.jsonl").touch()
    connection = sqlite3.connect(directory / DATABASE)
    connection.execute(_TABLE)
    connection.close()
    _to_sqlite(directory).check()


def play_pipeline(directory: Path, sales: Sales, engine: Engine, display: Display) -> list[Row]:
    """Play the act in the hub of a directory. Return its rows of the closing table."""
    display.say(
        f"\n{len(SHOPS)} shops append {sales.rows:,} sales to files; a pipeline on the engine "
        f"{engine} writes them to Parquet, SQLite and a topic"
    )
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        run = _defined(directory, sales, engine).prepare(hub, until=Until.STOPPED)
        with ThreadPoolExecutor(1) as pool, open_shops(directory / FILES, sales.rows):
            watcher = _RunWatcher(run, pool.submit(run.run), sales, display)
            try:
                before_failure = _operate(directory, run, watcher)
            finally:
                run.stop()
    return sink_rows(directory, before_failure)


def commands(directory: Path) -> list[str]:
    """Return commands that inspect the outcome."""
    return [
        f"tailrace --hub {shlex.quote(str(directory))} pipeline status {PIPELINE}",
        f"tailrace --hub {shlex.quote(str(directory))} audit --target {SQLITE}",
    ]


def _defined(directory: Path, sales: Sales, engine: Engine) -> tailrace.Pipeline:
    pipeline = tailrace.Pipeline(
        PIPELINE, readers.file(glob.escape(f"{directory / FILES}") + "/*.jsonl")
    )
    pipeline.write("parquet", writers.parquet(f"{directory / PARQUET}"), engine=engine)
    pipeline.write("topic", writers.topic(TOPIC, create_partitions=4), engine=engine)
    batch_rows = max(_BATCH_ROWS_MIN, sales.rows // _BATCHES)
    return pipeline.write("sqlite", _to_sqlite(directory), engine=engine, batch_rows=batch_rows)


def _to_sqlite(directory: Path) -> writers.sql:
    return writers.sql(f"sqlite:///{directory / DATABASE}", table="sales")


class _RunWatcher:
    """Shows the progress of the run, and waits for events in it."""

    def __init__(
        self, run: PipelineRun, outcome: Future[RunOutcome], sales: Sales, display: Display
    ) -> None:
        self._run = run
        self._outcome = outcome
        self._rows = sales.rows
        self._progress = StageProgress(display, "writing", 3 * sales.rows, "rows")
        self.say = self._progress.say
        self.end = self._progress.end

    def until(self, happened: Callable[[RunState], bool]) -> WriterState:
        """Wait until a condition of the run is true. Return the state of the SQLite writer then."""
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            now = self._run.state()
            self._progress.show(sum(max(0, now.rows_read - each.lag) for each in now.writers))
            if len(now.writers) == len(self._run.definition.writers) and happened(now):
                return _sqlite(now)
            if self._outcome.done():
                self._outcome.result()
                raise PipelineFailed(PIPELINE, self._run.failures())
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pipeline {PIPELINE} takes too long: {now}")
            time.sleep(_POLL_S)

    def until_written(self, *without: str) -> None:
        """Wait until every writer, except those named, has written all rows."""
        self.until(
            lambda now: (
                now.rows_read == self._rows
                and not any(each.lag for each in now.writers if each.name not in without)
            )
        )


def _sqlite(now: RunState) -> WriterState:
    return next(each.state for each in now.writers if each.name == SQLITE)


def _failed_since(state: WriterState, time_ms: int) -> bool:
    return state.state is WriterStatus.FAILED and state.since_ms > time_ms


def _operate(directory: Path, run: PipelineRun, watcher: _RunWatcher) -> int:
    """Act as the operator. Return the number of rows in SQLite before the failure."""
    command = f"  $ tailrace --hub {shlex.quote(str(directory))} pipeline"
    failed = watcher.until(lambda now: _sqlite(now).state is WriterStatus.FAILED)
    watcher.say(f"  failed:  {SQLITE}, after {failed.rows:,} rows: {failed.error}")
    watcher.until_written(SQLITE)
    watcher.say(f"  others:  have written all rows; {SQLITE} waits for an operator")
    watcher.say(f"{command} retry {SQLITE} --one-at-a-time")
    retry_one_at_a_time(run.hub, SQLITE)
    stopped = watcher.until(lambda now: _failed_since(_sqlite(now), failed.since_ms))
    if stopped.position is None:
        raise PipelineFailed(PIPELINE, run.failures())
    offset = str(Position.parse(stopped.position).offset)
    watcher.say(f"  stopped: one row at a time, at {stopped.position}: {stopped.error}")
    watcher.say(f"{command} ack {SQLITE} {offset} --reason {shlex.quote(REASON)}")
    ack(run.hub, SQLITE, offset, REASON)
    watcher.until_written()
    watcher.end()
    return failed.rows
