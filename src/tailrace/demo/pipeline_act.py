"""The act of the pipeline: growing files into Parquet, SQLite and a topic, and one bad row.

SQLite refuses the batch with the bad row, so that writer stops; the others go on to the end. Then
an operator looks: the batch again one row at a time, up to the bad one, which is acknowledged.
"""

from __future__ import annotations

import glob
import shlex
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import tailrace
from tailrace import readers, writers
from tailrace.demo.growing import growing
from tailrace.demo.progress import Progress
from tailrace.demo.report import Row
from tailrace.demo.sales import SHOPS, Sales
from tailrace.demo.sinks import DATABASE, FILES, PARQUET, TOPIC, compared
from tailrace.errors import PipelineFailed
from tailrace.message import Position
from tailrace.operations.interventions import ack, retry_one_at_a_time
from tailrace.pipeline.books import State, WriterState
from tailrace.pipeline.definition import Engine
from tailrace.pipeline.run import Ending, PipelineRun, RunProgress
from tailrace.source.reader import Until

PIPELINE: Final = "shops"
SQLITE: Final = f"{PIPELINE}/sqlite"
REASON: Final = "a total below 0, corrected in the shop"

WITHOUT: Final = """\
Sales: one job writes each batch to Parquet, SQLite and the topic. It stops at the batch that SQLite
refuses, at every start anew, and all three are left there."""
"""How the last column of its rows comes about."""

_TABLE: Final = """
CREATE TABLE sales (shop TEXT, number INTEGER, customer TEXT, total REAL CHECK (total >= 0))
"""
_BATCHES: Final = 50
_BATCH_ROWS_MIN: Final = 500
_LOOK_S: Final = 0.1
_SECONDS_MAX: Final = 300.0


def set_up(directory: Path) -> None:
    """Make what the pipeline finds: a place for the files, and a database with a constraint.

    The table has no key, so a row that is written twice is there twice.
    """
    (directory / FILES).mkdir()
    for shop in SHOPS:
        (directory / FILES / f"{shop}.jsonl").touch()
    connection = sqlite3.connect(directory / DATABASE)
    connection.execute(_TABLE)
    connection.close()
    _to_sqlite(directory).check()


def play_pipeline(directory: Path, sales: Sales, engine: Engine) -> list[Row]:
    """Play it in the hub of a directory; the rows of the closing table."""
    print(
        f"\n{sales.rows:,} sales of {len(SHOPS)} shops, appended to files that grow -> commit log "
        f"-> Parquet, SQLite and a topic, by the engine {engine}",
        file=sys.stderr,
    )
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        run = _defined(directory, sales, engine).prepare(hub, until=Until.STOPPED)
        with ThreadPoolExecutor(1) as pool, growing(directory / FILES, sales.rows):
            audience = _Audience(run, pool.submit(run.run), sales)
            try:
                before_failure = _operate(directory, run, audience)
            finally:
                run.stop()
    return compared(directory, before_failure)


def commands(directory: Path) -> list[str]:
    """What to look at afterwards."""
    return [
        f"tailrace --hub {directory} pipeline status {PIPELINE}",
        f"tailrace --hub {directory} audit --target {SQLITE}",
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


class _Audience:
    """Shows how far the run is, and waits for things to happen in it."""

    def __init__(self, run: PipelineRun, ending: Future[Ending], sales: Sales) -> None:
        self._run = run
        self._ending = ending
        self._rows = sales.rows
        self._progress = Progress(sys.stderr, "writing", 3 * sales.rows, "rows")
        self.say = self._progress.say
        self.end = self._progress.end

    def until(self, happened: Callable[[RunProgress], bool]) -> WriterState:
        """Wait until something is true of the run; the state of the writer to SQLite then."""
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            now = self._run.progress()
            self._progress.show(sum(max(0, now.rows_read - each.behind) for each in now.writers))
            if len(now.writers) == len(self._run.definition.writers) and happened(now):
                return _sqlite(now)
            if self._ending.done():
                self._ending.result()
                raise PipelineFailed(PIPELINE, self._run.troubles())
            if time.monotonic() > deadline:
                raise TimeoutError(f"the pipeline {PIPELINE} takes too long: {now}")
            time.sleep(_LOOK_S)

    def until_written(self, *without: str) -> None:
        """Wait until all writers, without these, have all rows."""
        self.until(
            lambda now: (
                now.rows_read == self._rows
                and not any(each.behind for each in now.writers if each.name not in without)
            )
        )


def _sqlite(now: RunProgress) -> WriterState:
    return next(each.state for each in now.writers if each.name == SQLITE)


def _failed_since(state: WriterState, time_ms: int) -> bool:
    return state.state is State.FAILED and state.since_ms > time_ms


def _operate(directory: Path, run: PipelineRun, audience: _Audience) -> int:
    """What happens, and what the operator does; how many rows SQLite had before the failure."""
    command = f"  $ tailrace --hub {directory} pipeline"
    failed = audience.until(lambda now: _sqlite(now).state is State.FAILED)
    audience.say(f"  failed:  {SQLITE}, behind row {failed.rows:,}: {failed.error}")
    audience.until_written(SQLITE)
    audience.say(f"  others:  have all rows; {SQLITE} waits for an operator")
    audience.say(f"{command} retry {SQLITE} --one-at-a-time")
    retry_one_at_a_time(run.hub, SQLITE)
    stopped = audience.until(lambda now: _failed_since(_sqlite(now), failed.since_ms))
    if stopped.position is None:
        raise PipelineFailed(PIPELINE, run.troubles())
    offset = str(Position.parse(stopped.position).offset)
    audience.say(f"  stopped: one row at a time, at {stopped.position}: {stopped.error}")
    audience.say(f"{command} ack {SQLITE} {offset} --reason {shlex.quote(REASON)}")
    ack(run.hub, SQLITE, offset, REASON)
    audience.until_written()
    audience.end()
    return failed.rows
