"""The settings of pipelines and writers, each declared once.

The fields are the keyword arguments of `Pipeline` and `Pipeline.write`, the keys of ``[pipeline]``
and ``[writer.NAME]`` in a file, the commented lines that ``tailrace pipeline init`` writes, and the
tables in the documentation. `options` explains `Meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, inspect

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidValue
from tailrace.pipeline.definition.options import PluginOption, options_of
from tailrace.pipeline.definition.spark_settings import read_spark_settings
from tailrace.pipeline.transform.function import Function
from tailrace.size import parse_size
from tailrace.topic.lineage import PARTITIONS_MAX

S = TypeVar("S", bound=msgspec.Struct)

BATCH_ROWS_MAX: Final = 10_000_000


class OnError(StrEnum):
    """What a writer does with a record that it cannot write."""

    STOP = "stop"
    STOP_ALL = "stop-all"
    PARK = "park"


class Engine(StrEnum):
    """Where a writer runs."""

    SPARK = "spark"
    DIRECT = "direct"


class CatchUp(StrEnum):
    """The writers that reading waits for after a restart."""

    NONE = "none"
    ALL = "all"


class Reading(StrEnum):
    """Who reads the source of a pipeline: the run of the pipeline alone, or many tasks."""

    ALONE = "alone"
    SHARED = "shared"


class Start(StrEnum):
    """Where a writer starts that has not run before.

    `AGAIN` is the earliest record, even if the sink has rows of a writer of this name from another
    commit log.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    AGAIN = "again"


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a source."""

    partitions: Annotated[
        int,
        Meta(
            description="Number of partitions of the commit log. With more than 1, rows of one "
            "identity or namespace keep their order.",
            ge=1,
            le=PARTITIONS_MAX,
        ),
    ] = 1


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a pipeline."""

    partitions: Annotated[
        int,
        Meta(
            description="Number of partitions of the commit log. With 1, writers get the rows in "
            "the order of reading. With more, rows of one identity or namespace keep their order.",
            ge=1,
            le=PARTITIONS_MAX,
        ),
    ] = 1
    engine: Annotated[
        Engine,
        Meta(description="Default engine of the writers: spark, or direct, which needs no Java."),
    ] = Engine.SPARK
    reading: Annotated[
        Reading,
        Meta(
            description="Who reads the source: the run of the pipeline alone, or shared, many "
            "tasks: the run is one, and tailrace source run FILE adds others."
        ),
    ] = Reading.ALONE
    catch_up: Annotated[
        CatchUp,
        Meta(
            description="The writers that reading waits for after a restart: none, or all, until "
            "each has delivered the records that were in the commit log."
        ),
    ] = CatchUp.NONE
    log_bytes_max: Annotated[
        int,
        Meta(
            description="Reading pauses while the slowest writer has about this much of the "
            "commit log left to deliver.",
            extra={"size": True},
        ),
    ] = 10 << 30
    stop_timeout: Annotated[
        timedelta,
        Meta(description="How long a clean stop waits for the writers to finish their batches."),
    ] = timedelta(seconds=30)
    progress_interval: Annotated[
        timedelta,
        Meta(
            description="When records are delivered one at a time, acknowledgements are durable "
            "within this time."
        ),
    ] = timedelta(seconds=1)
    spark: Annotated[
        dict[str, str],
        Meta(
            description='Settings of the Spark session, such as "spark.executor.memory" = "2g".',
            examples=[{}],
            extra={"unset": "none"},
        ),
    ] = msgspec.field(default_factory=dict)


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a writer of a pipeline, apart from the options of its plug-in."""

    namespace: Annotated[
        str | None,
        Meta(
            description="The namespaces that the writer gets: a name, or a regular expression "
            "between slashes.",
            examples=["/^public[.]/"],
            extra={"unset": "all"},
        ),
    ] = None
    functions: Annotated[
        tuple[Function, ...],
        Meta(
            description="The functions that change the documents, in this order.",
            examples=[
                [{"omit": ["card"]}, {"skip": {"field": "total", "operator": "<", "value": 0}}]
            ],
            extra={"unset": "none"},
        ),
    ] = ()
    on_error: Annotated[
        OnError,
        Meta(
            description="If a record cannot be written: stop this writer, stop-all writers and "
            "the reader, or park the record in the dead letters and continue."
        ),
    ] = OnError.STOP
    engine: Annotated[
        Engine | None,
        Meta(
            description="Where the writer runs: spark or direct.",
            examples=[Engine.SPARK],
            extra={"unset": "the pipeline's"},
        ),
    ] = None
    start: Annotated[
        Start,
        Meta(
            description="Where a new writer starts: earliest, latest, or again, which is earliest "
            "even if the sink has rows of this pipeline from another hub."
        ),
    ] = Start.EARLIEST
    batch_rows: Annotated[
        int,
        Meta(
            description="Maximum number of records of a partition in one batch.",
            ge=1,
            le=BATCH_ROWS_MAX,
        ),
    ] = 100_000


def read_settings(declared: type[S], given: Mapping[str, object]) -> S:
    """Return the settings with these values, which may be in writing: ``30s``, ``10GiB``.

    `InvalidValue` names the setting and the valid values.
    """
    options = {option.name: option for option in options_of(declared)}
    return declared(**{name: _read(options[name], value) for name, value in given.items()})


def _read(option: PluginOption, value: object) -> Any:
    kind = option.type
    if isinstance(kind, inspect.UnionType):
        if value is None:
            return None
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    if isinstance(kind, inspect.EnumType):
        if value not in list(kind.cls):
            raise InvalidValue(option.name, value, ", ".join(map(str, kind.cls)))
        return kind.cls(value)
    if isinstance(kind, inspect.DictType):
        return read_spark_settings(value, option.name)
    if isinstance(kind, inspect.TimeDeltaType):
        return parse_duration(value, option.name)
    if option.is_size:
        return parse_size(value, option.name)
    if isinstance(kind, inspect.IntType):
        low, high = kind.ge or 0, kind.le or 0
        if not (is_whole(value) and low <= value <= high):
            raise InvalidValue(option.name, value, f"a whole number from {low:,} to {high:,}")
    return value
