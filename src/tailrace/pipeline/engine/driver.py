"""Drivers: they wake a writer for new records, for operators, and for the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tailrace.backend.contract import Follower
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.definition.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine.direct import DirectEngine
from tailrace.pipeline.writing.plan_engine import PlanEngine
from tailrace.pipeline.writing.writer_run import WriterRun

EndOffsets: TypeAlias = "Callable[[], Mapping[Partition, int] | None]"
"""Returns the offsets at which the writers end; None while they are not known."""

POLL_S: Final = 0.25
"""The longest time between two checks for operators and for the end of the run."""


class Driver(Protocol):
    """Drives one writer, in its own thread."""

    @property
    def engine(self) -> PlanEngine:
        """The engine that executes the writer's plans."""

    def drive(self, run: WriterRun, limit: EndOffsets, finished: Callable[[], bool]) -> None:
        """Deliver new records, up to `limit` once it is known, until `finished` returns True."""

    def abandon(self) -> None:
        """Cancel the work in progress, because the process is about to exit."""


DriverOf: TypeAlias = "Callable[[Hub, PipelineDefinition, WriterDefinition], Driver]"


class DirectDriver:
    """Delivers records as they are committed, by the direct engine."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.engine = DirectEngine(hub)

    def drive(self, run: WriterRun, limit: EndOffsets, finished: Callable[[], bool]) -> None:
        """See `Driver`."""
        follower = self._hub.backend.follower()
        try:
            drain_on_commit(run, follower, finished, lambda: run.drain(limit()))
        finally:
            follower.close()

    def abandon(self) -> None:
        """Do nothing: no work outlives the process."""


def drain_on_commit(
    run: WriterRun, follower: Follower, finished: Callable[[], bool], drain: Callable[[], None]
) -> None:
    """Begin, then drain the writer after each commit.

    Begins again whenever an operator overtook the driver. Returns when `finished` returns True.
    """
    run.begin_or_wait()
    while True:
        follower.arm()
        if run.overtaken():
            run.begin_or_wait()
        drain()
        if finished():
            return
        follower.wait(POLL_S)


def direct_driver(
    hub: Hub, _pipeline: PipelineDefinition, _writer: WriterDefinition
) -> DirectDriver:
    """Return a direct driver; the engine in the definition is ignored."""
    return DirectDriver(hub)


def hub_directory(hub: Hub) -> Path:
    """Return the absolute directory of a hub: Spark's workers have working directories of their
    own."""
    return Path(hub.backend.name).absolute()


def spark_directory(hub: Path) -> Path:
    """Return the directory of a hub's Spark files: checkpoints and the log."""
    return hub / "hub.spark"
