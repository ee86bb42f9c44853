"""Where the work of a writer on Spark is done: by the executors, or by the driver.

Executors read the records from the hub's files if all of them can; otherwise the driver reads them
and sends them with the tasks. Executors write to a sink that each of them reaches; otherwise they
transform the rows, and the driver writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tailrace.amount import format_amount
from tailrace.pipeline.writer import LocalSink


class Place(StrEnum):
    """Where a part of the work is done."""

    EXECUTORS = "executors"
    DRIVER = "driver"


class ExecutorAnswer(NamedTuple):
    """The answer of an executor: why it cannot read the hub, and why it cannot write the sink.

    None if it can. `process` is unique on its `host`.
    """

    host: str
    process: int
    hub_error: str | None
    sink_error: str | None


class WorkPlacement(msgspec.Struct, frozen=True):
    """Where records are read and where rows are written, and why it is not the executors.

    The hub stores it for `explain`.
    """

    reading: Place = Place.EXECUTORS
    writing: Place = Place.EXECUTORS
    notes: tuple[str, ...] = ()

    @property
    def driver_reads(self) -> bool:
        """True if the driver reads the records and sends them with the tasks."""
        return self.reading is Place.DRIVER

    @property
    def driver_writes(self) -> bool:
        """True if the rows come back to the driver, which writes them."""
        return self.writing is Place.DRIVER


def place(
    answers: Sequence[ExecutorAnswer], executors: int, hub: str, sink: LocalSink | None
) -> WorkPlacement:
    """Decide by the answers of the executors, of which there are `executors`.

    `hub` is the directory of the hub; `sink` is None if every host reaches the sink. An executor
    that did not answer counts as one that shares no directory.
    """
    silent = max(0, executors - len(answers))
    blind = sorted({(each.host, each.hub_error) for each in answers if each.hub_error})
    apart = sorted({(each.host, each.sink_error) for each in answers if each.sink_error})
    notes = [
        f"{host} cannot read the hub {hub}: {error} · the driver sends the records; to let"
        f" executors read them, mount {hub} there under the same path, readable for Spark's user"
        for host, error in blind
    ]
    if sink is not None:
        notes += [
            f"{host} does not share {sink.directory}: {error} · {_remedy(sink)}"
            for host, error in apart
        ]
    if silent:
        notes.append(
            f"{format_amount(silent, 'executor')} of {executors} did not answer in time · the"
            " driver reads and writes until they do"
        )
    missing = bool(silent) or not answers
    return WorkPlacement(
        reading=Place.DRIVER if blind or missing else Place.EXECUTORS,
        writing=Place.DRIVER if sink is not None and (apart or missing) else Place.EXECUTORS,
        notes=tuple(notes),
    )


def _remedy(sink: LocalSink) -> str:
    """Return what is done about a sink that executors do not share, and what helps."""
    if sink.executors_only:
        return "Spark's executors write this sink: choose a path that all hosts share"
    if sink.one_host:
        return "the driver writes the rows"
    mount = f"mount {sink.directory} there under the same path"
    return f"the driver writes the rows; to let executors write them, {mount}"
