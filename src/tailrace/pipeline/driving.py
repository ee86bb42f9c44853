"""What keeps a writer going: new records, operators, and the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tailrace.backend.contract import Follower
from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.definition import PipelineDefinition, WriterDefinition
from tailrace.pipeline.engine import DirectEngine, PlanEngine
from tailrace.pipeline.writing import WriterRun

Limit: TypeAlias = "Callable[[], Mapping[Partition, int] | None]"

LOOK_S: Final = 0.25
"""How long a writer waits at most before it looks for operators and for the end."""


class Driver(Protocol):
    """Drives one writer, in a thread of its own."""

    @property
    def engine(self) -> PlanEngine:
        """What carries out the writer's plans."""

    def drive(self, run: WriterRun, limit: Limit, finished: Callable[[], bool]) -> None:
        """Deliver what comes, up to `limit` once it is known, until `finished`."""

    def abandon(self) -> None:
        """Leave what is under way: the process is about to end."""


DriverOf: TypeAlias = "Callable[[Hub, PipelineDefinition, WriterDefinition], Driver]"


class DirectDriver:
    """Delivers records as they are committed."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.engine = DirectEngine(hub)

    def drive(self, run: WriterRun, limit: Limit, finished: Callable[[], bool]) -> None:
        """See `Driver`."""
        follower = self._hub.backend.follower()
        try:
            attend(run, follower, finished, lambda: run.drain(limit()))
        finally:
            follower.close()

    def abandon(self) -> None:
        """Nothing outlives the process."""


def attend(
    run: WriterRun, follower: Follower, finished: Callable[[], bool], drain: Callable[[], None]
) -> None:
    """Begin, then let the writer drain whenever something was committed, and begin again whenever
    an operator overtook it."""
    begin(run)
    while True:
        follower.arm()
        if run.overtaken():
            begin(run)
        drain()
        if finished():
            return
        follower.wait(LOOK_S)


def begin(run: WriterRun) -> None:
    """Take the writer over; where its sink cannot be had, it has failed."""
    try:
        run.begin()
    except Exception as error:
        run.fail(error)


def drive_directly(
    hub: Hub, _pipeline: PipelineDefinition, _writer: WriterDefinition
) -> DirectDriver:
    """Every writer by the direct engine, whatever its definition says."""
    return DirectDriver(hub)


def spark_directory(hub: str) -> Path:
    """Where Spark's files of a hub are: checkpoints, and its log."""
    return Path(hub).absolute() / "hub.spark"
