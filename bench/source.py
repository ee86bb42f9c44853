"""Copying files by two tasks of a source, compared with one."""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import tailrace
from bench.consumer_processes import Process
from bench.measure import Scale, Timer, Turn, take_turns
from bench.reader import LINES, block
from bench.report import Goal, Row, figures_of
from tailrace import Source, readers

FILES = 8
RANGE_BYTES = 16 << 20
TWO, ONE = "two tasks", "one task"
REASON = (
    "the tasks append to one partition, and each append holds its lock while it is written;"
    " joining and sharing take about half a second"
)


def rows(scale: Scale) -> list[Row]:
    """Measure how much faster two tasks are."""
    work = f"copy {FILES} files of JSON lines into a commit log, no sync, in ranges of 16 MiB"
    blocks = max(FILES, scale.count(640))
    contenders: dict[str, Turn] = {TWO: _copied_by(2, blocks), ONE: _copied_by(1, blocks)}
    rates = take_turns(work, contenders, scale.rounds)
    goal = Goal("two tasks against one", rates.ratio(TWO, ONE), 1.5, reason=REASON)
    return [Row(work, figures_of(rates, "lines"), (goal,))]


def _copied_by(tasks: int, blocks: int) -> Turn:
    return partial(_copy, tasks, blocks)


def _copy(tasks: int, blocks: int, directory: Path, timer: Timer) -> int:
    for number in range(FILES):
        with (directory / f"f{number}.jsonl").open("wb") as file:
            for _ in range(blocks // FILES):
                file.write(block())
    tailrace.open(directory / "hub", sync="none").close()
    started = [_Task(directory) for _ in range(tasks)]
    with timer.running():
        for task in started:
            task.begin()
        lines: int = sum(task.wait() for task in started)
    assert lines == blocks // FILES * FILES * LINES
    return lines


class _Task(Process):
    """A process that copies the files once it is told to, and reports its rows."""

    def __init__(self, directory: Path) -> None:
        super().__init__(_work, directory)

    def begin(self) -> None:
        self._pipe.send(None)


def _work(pipe: Connection, directory: Path) -> None:
    reader = readers.file(str(directory / "*.jsonl"), range_bytes=RANGE_BYTES)
    with tailrace.open(directory / "hub", sync="none") as hub:
        pipe.send(None)
        pipe.recv()
        pipe.send(Source("files", reader).run(hub, once=True, progress=False).rows)
