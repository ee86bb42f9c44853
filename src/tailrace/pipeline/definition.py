"""A pipeline as it was defined, in Python or in a file. It opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tailrace.pipeline.chain import Chain
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader


class OnError(StrEnum):
    """What happens to a record that a writer cannot take."""

    STOP = "stop"
    STOP_ALL = "stop-all"
    PARK = "park"


class Engine(StrEnum):
    """Where a writer's chain runs."""

    SPARK = "spark"
    DIRECT = "direct"


class CatchUp(StrEnum):
    """For which writers new reading waits after a restart."""

    NONE = "none"
    ALL = "all"


class Start(StrEnum):
    """Where a writer begins that was never run before: `AGAIN` is the earliest record too, also
    where the sink has rows of a writer of this name from another commit log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    AGAIN = "again"


BATCH_ROWS: Final = 100_000
LOG_BYTES_MAX: Final = 10 << 30
STOP_TIMEOUT: Final = timedelta(seconds=30)
PROGRESS_INTERVAL: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterDefinition:
    """One writer of a pipeline: what it gets, what is done to that, and where it goes.

    A plan has at most `batch_rows` records of each partition of the commit log.
    """

    name: str
    writer: Writer
    chain: Chain
    on_error: OnError = OnError.STOP
    engine: Engine = Engine.SPARK
    start: Start = Start.EARLIEST
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """A reader and its writers.

    The commit log has `partitions` partitions. Reading pauses while more than `log_bytes_max` of it
    wait for the slowest writer. A clean stop gives writers `stop_timeout`. Acknowledgements are
    durable within `progress_interval`. `origin` is the file that it comes from, if it does.
    """

    name: str
    reader: Reader
    writers: tuple[WriterDefinition, ...]
    partitions: int = 1
    catch_up: CatchUp = CatchUp.NONE
    log_bytes_max: int = LOG_BYTES_MAX
    stop_timeout: timedelta = STOP_TIMEOUT
    progress_interval: timedelta = PROGRESS_INTERVAL
    origin: str = ""

    @property
    def commit_log(self) -> str:
        """The topic that the reader appends to."""
        return f"{self.name}.commits"

    @property
    def dead_letters(self) -> str:
        """The topic of what could not be read or written."""
        return f"{self.name}.dead-letters"
