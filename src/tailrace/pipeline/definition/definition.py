"""A pipeline as it was defined, in Python or in a file. It opens nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.pipeline.definition.settings import Engine, PipelineSettings, WriterSettings
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.writer import Writer
from tailrace.reserved_names import COMMIT_LOG_SUFFIX, DEAD_LETTERS_SUFFIX
from tailrace.source.reader import Reader


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
    """A reader and its writers. `origin` is the file that defines the pipeline, or empty."""

    name: str
    reader: Reader
    writers: tuple[WriterDefinition, ...]
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    origin: str = ""

    @property
    def commit_log(self) -> str:
        """The topic that the reader appends to."""
        return self.name + COMMIT_LOG_SUFFIX

    @property
    def dead_letters(self) -> str:
        """The topic of the records that could not be read or written."""
        return self.name + DEAD_LETTERS_SUFFIX
