"""A pipeline as it was defined, in Python or in a file. It opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.errors import InvalidValue
from tailrace.pipeline.definition.settings import (
    Engine,
    PipelineSettings,
    Reading,
    WriterSettings,
)
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.writer import Writer
from tailrace.reserved_names import COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX
from tailrace.source.catalog import run_command
from tailrace.source.reader import Reader
from tailrace.source.source import Source


@dataclass(frozen=True, slots=True)
class FollowedSource:
    """A source that tasks of its own read, by its name: a pipeline follows its commit log.

    `origin` is the file that defines it, or empty.
    """

    name: str
    origin: str = ""

    @property
    def run_command(self) -> str:
        """The command that runs a task of the source."""
        return run_command(self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterDefinition:
    """One writer of a pipeline: the chain of functions before it, the sink and its settings.

    `engine` is that of the settings, or the pipeline's.
    """

    name: str
    writer: Writer
    chain: Chain
    engine: Engine = Engine.SPARK
    settings: WriterSettings = field(default_factory=WriterSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """A reader, or the source that is followed instead, and the writers.

    `origin` is the file that defines the pipeline, or empty.
    """

    name: str
    reader: Reader | FollowedSource
    writers: tuple[WriterDefinition, ...]
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    origin: str = ""

    @property
    def commit_log(self) -> str:
        """The topic that the writers consume."""
        reads = self.reader.name if isinstance(self.reader, FollowedSource) else self.name
        return reads + COMMIT_LOG_SUFFIX

    @property
    def dead_letters(self) -> str:
        """The topic of the records that could not be read or written."""
        return self.name + DEAD_LETTERS_SUFFIX

    @property
    def source(self) -> Source:
        """The source of the pipeline, which many tasks read. `InvalidValue` if it has none."""
        if isinstance(self.reader, FollowedSource):
            source = self.reader
            raise InvalidValue(
                "source",
                source.name,
                "",
                f"run a task of the source itself: {source.run_command}",
                f"pipeline {self.name!r} only follows source {source.name!r}",
            )
        if self.settings.reading is not Reading.SHARED:
            raise InvalidValue(
                "reading",
                str(self.settings.reading),
                f"{Reading.SHARED}, for a pipeline whose source many tasks read",
            )
        source_of_pipeline = Source(
            self.name, self.reader, partitions=self.settings.partitions, origin=self.origin
        )
        source_of_pipeline.of_pipeline = True
        return source_of_pipeline
