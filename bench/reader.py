"""Reading JSON lines into a commit log, compared with loops that split and validate lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import tailrace
from bench.measure import OURS, Scale, Timed, Timer, take_turns
from bench.report import Row, against, figures_of, information
from tailrace import readers
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun

LINES = 10_000
LOOP = "split and validate"
SKIPPING_LOOP = "split and validate, no values"

REASON = (
    "half of the time is validating; the rest is cutting the lines into a column, encoding the"
    " records and writing them"
)


class _Object(msgspec.Struct):
    """Any JSON object: its fields are checked, and no value is built."""


def rows(scale: Scale) -> list[Row]:
    """Measure the file reader."""
    work = "read JSON lines of about 100 B into a commit log, no sync"
    reading = _Reading(scale.count(40))
    contenders = {
        OURS: reading.ours,
        LOOP: reading.loop,
        SKIPPING_LOOP: reading.skipping_loop,
    }
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    figures = (*figures_of(rates, "lines"), *information(rates, SKIPPING_LOOP))
    return [Row(work, figures, (against(rates, LOOP, 0.5, reason=REASON),))]


@cache
def block() -> bytes:
    """Return `LINES` lines."""
    return b"".join(
        b'{"id":%d,"customer":"c%05d","total":%d.25,"note":"%s","tags":["a","b"],"paid":true}\n'
        % (number, number % 2000, number % 977, b"x" * (number % 60))
        for number in range(LINES)
    )


class _Reading:
    """Turns that read the same file from the cache."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks

    def _write(self, directory: Path) -> Path:
        path = directory / "orders.jsonl"
        with path.open("wb") as file:
            for _ in range(self._blocks):
                file.write(block())
        return path

    def ours(self, directory: Path, timer: Timer) -> int:
        reader = readers.file(str(self._write(directory)))
        settings = tailrace.HubSettings()
        with tailrace.open(directory / "hub", sync="none", settings=settings) as hub:
            log = hub.create_topic("log", partitions=1)
            letters = hub.create_topic("letters", partitions=1)
            with timer.running(), SourceRun(hub, "orders", reader, log, letters, Until.NOW) as run:
                while not run.done:
                    run.step()
            assert run.rows == self._blocks * LINES
            return run.rows

    def loop(self, directory: Path, timer: Timer) -> int:
        return self._loop(directory, timer, msgspec.json.Decoder(dict[str, Any]))

    def skipping_loop(self, directory: Path, timer: Timer) -> int:
        return self._loop(directory, timer, msgspec.json.Decoder(_Object))

    def _loop(self, directory: Path, timer: Timer, decoder: msgspec.json.Decoder[Any]) -> int:
        path, decode = self._write(directory), decoder.decode
        with timer.running(), path.open("rb") as file:
            for line in file:
                decode(line)
        return self._blocks * LINES
