"""Definitions built from plain values and checked, for Python and for files alike.

A value that is not valid raises `InvalidValue` or `InvalidName`, which names the argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tailrace.errors import InvalidName, InvalidValue
from tailrace.pipeline.definition.definition import (
    FollowedSource,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.definition.settings import (
    Engine,
    PipelineSettings,
    WriterSettings,
    read_settings,
)
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.function import Function
from tailrace.pipeline.transform.namespace import NamespaceFilter
from tailrace.pipeline.writer import Writer
from tailrace.source.reader import Reader, check_reader
from tailrace.topic.composite import check_short_name

_DEFAULTS: Final = PipelineSettings()

_OF_READING: Final = ("partitions", "reading", "catch_up", "log_bytes_max")
"""The settings that concern the reader of a pipeline."""


def writer_definition(
    name: str,
    writer: Writer,
    *,
    pipeline: str,
    default_engine: Engine = Engine.SPARK,
    functions: Iterable[Function] = (),
    **given: object,
) -> WriterDefinition:
    """Return a writer of a pipeline. `given` are `WriterSettings`.

    Checks everything that can be checked without opening the writer.
    """
    if not isinstance(writer, Writer):
        raise InvalidValue("writer", writer, "one of tailrace.writers")
    settings = read_settings(WriterSettings, given | {"functions": _functions(functions)})
    chain = Chain(
        NamespaceFilter.parse(settings.namespace),
        settings.functions,
        controls=writer.wants_controls,
        columns=writer.takes_columns,
        writer=f"{pipeline}/{check_short_name('writer', name)}",
    )
    engine = settings.engine or default_engine
    if engine is not Engine.SPARK and (chain.needs_spark or writer.needs_spark):
        needing = "the function sql" if chain.needs_spark else "this writer"
        raise InvalidValue("engine", str(engine), "spark", f"{needing} needs it")
    return WriterDefinition(name=name, writer=writer, chain=chain, engine=engine, settings=settings)


def pipeline_definition(
    name: str,
    reader: Reader | FollowedSource,
    writers: Iterable[WriterDefinition],
    settings: PipelineSettings = _DEFAULTS,
) -> PipelineDefinition:
    """Return a pipeline. Checks everything that can be checked without opening the reader."""
    defined = tuple(writers)
    if not defined:
        raise InvalidValue("writers", [], "one writer or more")
    names = [writer.name for writer in defined]
    if len(set(names)) < len(names):
        raise InvalidValue("writers", names, "each name once")
    check_short_name("pipeline", name)
    if isinstance(reader, FollowedSource):
        _check_follows(name, reader, settings)
    else:
        check_reader(reader)
    return PipelineDefinition(name=name, reader=reader, writers=defined, settings=settings)


def _check_follows(name: str, source: FollowedSource, settings: PipelineSettings) -> None:
    """Raise an error for a name or a setting that a pipeline without a reader cannot have."""
    check_short_name("source", source.name)
    if name == source.name:
        raise InvalidName("pipeline", name, "a name that is not that of its source")
    for setting in _OF_READING:
        value = getattr(settings, setting)
        if value != getattr(_DEFAULTS, setting):
            shown = str(value) if isinstance(value, str) else value
            why = f"the tasks of source {source.name!r} read, and the pipeline follows their log"
            raise InvalidValue(setting, shown, f"not to set it: {why}")


def _functions(functions: Iterable[object]) -> tuple[Function, ...]:
    checked = []
    for function in functions:
        if not isinstance(function, Function):
            valid = "functions of tailrace.functions; your own as fn.python(…)"
            raise InvalidValue("functions", function, valid)
        checked.append(function)
    return tuple(checked)
