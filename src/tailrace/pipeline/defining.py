"""Definitions from plain values, each checked: what Python and files have in common.

Whatever is refused is an `InvalidValue` or `InvalidName` that names the argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeVar

from tailrace.amount import is_whole
from tailrace.duration import parse_duration
from tailrace.errors import InvalidName, InvalidValue
from tailrace.pipeline.chain import Chain
from tailrace.pipeline.definition import (
    BATCH_ROWS,
    LOG_BYTES_MAX,
    PROGRESS_INTERVAL,
    STOP_TIMEOUT,
    CatchUp,
    Engine,
    OnError,
    PipelineDefinition,
    Start,
    WriterDefinition,
)
from tailrace.pipeline.function import Function
from tailrace.pipeline.namespace import NamespaceFilter
from tailrace.pipeline.writer import Writer
from tailrace.size import parse_size
from tailrace.source.reader import Reader
from tailrace.topic.composite import check_name
from tailrace.topic.lineage import check_count

E = TypeVar("E", bound=StrEnum)

NAME_LENGTH_MAX: Final = 100
BATCH_ROWS_MAX: Final = 10_000_000


def writer_definition(
    name: str,
    writer: Writer,
    *,
    pipeline: str,
    namespace: str | None = None,
    functions: Iterable[Function] = (),
    on_error: str = OnError.STOP,
    engine: str = Engine.SPARK,
    start: str = Start.EARLIEST,
    batch_rows: int = BATCH_ROWS,
) -> WriterDefinition:
    """A writer of a pipeline, once all that can be known of it without opening it is right."""
    if not isinstance(writer, Writer):
        raise InvalidValue("writer", writer, "one of tailrace.writers")
    chain = Chain(
        NamespaceFilter.parse(namespace),
        _functions(functions),
        controls=writer.takes_controls,
        columns=writer.takes_columns,
        writer=f"{pipeline}/{check_short_name('writer', name)}",
    )
    chosen = _choice(Engine, "engine", engine)
    if chosen is not Engine.SPARK and (chain.needs_spark or writer.needs_spark):
        needing = "the function sql" if chain.needs_spark else "this writer"
        raise InvalidValue("engine", engine, "spark", f"{needing} needs it")
    return WriterDefinition(
        name=name,
        writer=writer,
        chain=chain,
        on_error=_choice(OnError, "on_error", on_error),
        engine=chosen,
        start=_choice(Start, "start", start),
        batch_rows=_whole("batch_rows", batch_rows, BATCH_ROWS_MAX),
    )


def pipeline_definition(
    name: str,
    reader: Reader,
    writers: Iterable[WriterDefinition],
    *,
    partitions: int = 1,
    catch_up: str = CatchUp.NONE,
    log_bytes_max: int | str = LOG_BYTES_MAX,
    stop_timeout: timedelta | str = STOP_TIMEOUT,
    progress_interval: timedelta | str = PROGRESS_INTERVAL,
) -> PipelineDefinition:
    """A pipeline, once all that can be known of it without opening it is right."""
    defined = tuple(writers)
    if not defined:
        raise InvalidValue("writers", [], "one writer or more")
    names = [writer.name for writer in defined]
    if len(set(names)) < len(names):
        raise InvalidValue("writers", names, "each name once")
    check_count(partitions, any_count=True)
    return PipelineDefinition(
        name=check_short_name("pipeline", name),
        reader=check_reader(reader),
        writers=defined,
        partitions=partitions,
        catch_up=_choice(CatchUp, "catch_up", catch_up),
        log_bytes_max=parse_size(log_bytes_max, "log_bytes_max"),
        stop_timeout=parse_duration(stop_timeout, "stop_timeout"),
        progress_interval=parse_duration(progress_interval, "progress_interval"),
    )


def check_short_name(kind: str, name: object) -> str:
    """A name that is still valid with what topics and files put after it."""
    checked = check_name(kind, name)
    if len(checked) > NAME_LENGTH_MAX:
        raise InvalidName(kind, name)
    return checked


def check_reader(reader: object) -> Reader:
    """A reader; `InvalidValue` for anything else."""
    if not isinstance(reader, Reader):
        raise InvalidValue("reader", reader, "one of tailrace.readers")
    return reader


def _functions(functions: Iterable[object]) -> tuple[Function, ...]:
    checked = []
    for function in functions:
        if not isinstance(function, Function):
            valid = "functions of tailrace.functions; your own as fn.python(…)"
            raise InvalidValue("functions", function, valid)
        checked.append(function)
    return tuple(checked)


def _choice(kind: type[E], what: str, value: object) -> E:
    if value not in list(kind):
        raise InvalidValue(what, value, ", ".join(kind))
    return kind(str(value))


def _whole(what: str, value: object, most: int) -> int:
    if not (is_whole(value) and 1 <= value <= most):
        raise InvalidValue(what, value, f"1 to {most:,}")
    return value
