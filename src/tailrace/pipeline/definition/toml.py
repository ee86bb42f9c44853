"""Pipelines and sources in TOML files, with the same names as in Python.

A file is read and checked; nothing is opened. A `ConfigError` names the file and the key that is
wrong: ``pipe.toml: writer.crm.urll: unknown · did you mean 'url'?``.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any, Final

import msgspec

from tailrace.errors import ConfigError
from tailrace.pipeline.definition import plugins
from tailrace.pipeline.definition.checks import pipeline_definition, writer_definition
from tailrace.pipeline.definition.config_key import ConfigKey
from tailrace.pipeline.definition.definition import (
    FollowedSource,
    PipelineDefinition,
    WriterDefinition,
)
from tailrace.pipeline.definition.options import decode_options, options_of
from tailrace.pipeline.definition.settings import (
    Engine,
    PipelineSettings,
    SourceSettings,
    WriterSettings,
    read_settings,
)
from tailrace.pipeline.definition.spark_settings import read_spark_settings
from tailrace.pipeline.definition.variables import expand_variables
from tailrace.pipeline.transform.function import Function
from tailrace.source.reader import Reader
from tailrace.source.source import Source
from tailrace.topic.composite import check_short_name

_SOURCE_TABLES: Final = ("source", "reader")
_SOURCE_KEYS: Final = ("name", *SourceSettings.__struct_fields__)
_PIPELINE_KEYS: Final = ("name", "source", *PipelineSettings.__struct_fields__)
_WRITER_KEYS: Final = ("type", *WriterSettings.__struct_fields__)

_LISTS: Final = ("omit", "pick")
_POSITIONAL: Final = ("rename", "remap", "python")
_KEYWORDS: Final = ("skip", "opfilter", "pretty", "sql")
_FUNCTIONS: Final = (*_LISTS, *_POSITIONAL, *_KEYWORDS)


def load_pipeline(
    path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ
) -> PipelineDefinition:
    """Return the pipeline that a file defines."""
    return decode_pipeline(_read_tables(path), os.fspath(path), environ)


def load_source(path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> Source:
    """Return the source that a file defines: that of ``[source]``, or that of a pipeline which many
    tasks read."""
    tables, origin = _read_tables(path), os.fspath(path)
    if "pipeline" in tables:
        definition = decode_pipeline(tables, origin, environ)
        with ConfigKey(origin).at("pipeline").attribute_errors():
            return definition.source
    return decode_source(tables, origin, environ)


def _read_tables(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the tables of a file; `ConfigError` if it cannot be read."""
    origin = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{origin} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{origin} is not TOML: {error}") from error


def decode_source(
    tables: Mapping[str, Any], origin: str, environ: Mapping[str, str] = os.environ
) -> Source:
    """Return the source that the tables of a file define; `origin` is the path of the file."""
    key = ConfigKey(origin)
    key.check_known(tables, _SOURCE_TABLES)
    for name in _SOURCE_TABLES:
        if name not in tables:
            raise key.error(f"[{name}] is missing")
    given = expand_variables(dict(tables), environ, key)
    name, table = _named(given["source"], key.at("source"), _SOURCE_KEYS)
    with key.at("source").attribute_errors():
        settings = read_settings(SourceSettings, table)
    reader = _plugin(plugins.PluginKind.READER, given["reader"], key.at("reader"))
    with key.at("source").attribute_errors():
        return Source(name, reader, partitions=settings.partitions, origin=origin)


def decode_pipeline(
    tables: Mapping[str, Any], origin: str, environ: Mapping[str, str] = os.environ
) -> PipelineDefinition:
    """Return the pipeline that the tables of a file define; `origin` is the path of the file."""
    key = ConfigKey(origin)
    if "source" in tables and "pipeline" not in tables:
        raise key.error(
            "it defines a source, and no pipeline",
            f"run a task of the source: tailrace source run {shlex.quote(origin)}",
            'or write a pipeline that follows it, with source = "NAME" in [pipeline]',
        )
    key.check_known(tables, ("pipeline", "reader", "writer"))
    for name in ("pipeline", "writer"):
        if name not in tables:
            raise key.error(f"[{name}{'.NAME' if name == 'writer' else ''}] is missing")
    given = expand_variables(dict(tables), environ, key)
    pipeline, table = _named(given["pipeline"], key.at("pipeline"), _PIPELINE_KEYS)
    source = table.pop("source", None)
    if "spark" in table:
        with key.at("pipeline").at("spark").attribute_errors():
            table["spark"] = read_spark_settings(table["spark"], "spark")
    with key.at("pipeline").attribute_errors():
        settings = read_settings(PipelineSettings, table)
    reader = _reader(source, given.get("reader"), key)
    writers_key = key.at("writer")
    writers = [
        _writer(name, value, pipeline, settings.engine, writers_key.at(name))
        for name, value in writers_key.table(given["writer"]).items()
    ]
    with key.at("pipeline").attribute_errors():
        defined = pipeline_definition(pipeline, reader, writers, settings)
    return replace(defined, origin=origin)


def _reader(source: Any, table: Any, key: ConfigKey) -> Reader | FollowedSource:
    """Return the reader of a pipeline, or the source that it follows instead."""
    if source is None:
        if table is None:
            raise key.error("[reader] is missing", 'or, in [pipeline]: source = "NAME"')
        found: Reader = _plugin(plugins.PluginKind.READER, table, key.at("reader"))
        return found
    if table is not None:
        raise key.at("reader").error(
            "the pipeline follows a source, which has its own reader",
            "remove [reader], or pipeline.source",
        )
    with key.at("pipeline").at("source").attribute_errors():
        return FollowedSource(check_short_name("source", source))


def _named(value: Any, key: ConfigKey, known: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the name in a table, and its other keys."""
    table = dict(key.table(value))
    key.check_known(table, known)
    if "name" not in table:
        raise key.at("name").error("missing, and has no default")
    return table.pop("name"), table


def _writer(
    name: str, value: Any, pipeline: str, engine: Engine, key: ConfigKey
) -> WriterDefinition:
    table = dict(key.table(value))
    settings = {k: table.pop(k) for k in WriterSettings.__struct_fields__ if k in table}
    functions = settings.pop("functions", [])
    writer = _plugin(plugins.PluginKind.WRITER, table, key)
    if not isinstance(functions, list):
        raise key.at("functions").error(f"{functions!r:.80} is not a list of functions")
    settings["functions"] = [
        _function(each, key.at("functions").at(index)) for index, each in enumerate(functions)
    ]
    with key.attribute_errors():
        return writer_definition(name, writer, pipeline=pipeline, default_engine=engine, **settings)


def _plugin(kind: plugins.PluginKind, value: Any, key: ConfigKey) -> Any:
    table = dict(key.table(value))
    name = table.pop("type", None)
    if name is None:
        known = ", ".join(plugins.plugins(kind))
        raise key.at("type").error("missing", f"valid: {known}")
    with key.at("type").attribute_errors():
        declared = plugins.plugin(kind, name).load()
        _check_own(declared, _WRITER_KEYS if kind is plugins.PluginKind.WRITER else ("type",))
    if kind is plugins.PluginKind.WRITER:
        key.check_known(table, [*(option.name for option in options_of(declared)), *_WRITER_KEYS])
    return decode_options(declared, table, key)


def _check_own(declared: type[msgspec.Struct], taken: tuple[str, ...]) -> None:
    for option in options_of(declared):
        if option.name in taken:
            raise ConfigError(
                f"{declared.__qualname__} has the option {option.name}",
                f"reserved for the pipeline: {', '.join(taken)}",
            )


def _function(value: Any, key: ConfigKey) -> Function:
    table = dict(key.table(value))
    namespace = table.pop("namespace", None)
    key.check_known(table, (*_FUNCTIONS, "namespace"))
    if len(table) != 1:
        raise key.error(f"has {len(table)} functions", 'valid: one, such as { omit = ["card"] }')
    ((name, argument),) = table.items()
    inner = key.at(name)
    # The functions are a layer above pipelines, so they are imported by name, as plug-ins are.
    make = getattr(import_module("tailrace.functions"), name)
    args, keywords = _arguments(name, argument, make, inner)
    with inner.attribute_errors():
        made: Function = make(*args, **keywords, namespace=namespace)
    return made


def _arguments(
    name: str, argument: Any, make: Any, key: ConfigKey
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments for a function from the value of its key."""
    if name in _LISTS:
        return (argument if isinstance(argument, list) else [argument]), {}
    if name == "python":
        return [argument], {"directory": str(key.directory)}
    if name in _POSITIONAL:
        for field, target in key.table(argument).items():
            if isinstance(target, dict):
                quoted = f'"{field}.{next(iter(target), "")}"'
                raise key.at(field).error("is a table", f"write a path in quotes: {quoted} = …")
        return [argument], {}
    parameters = signature(make).parameters.values()
    table = key.table(argument)
    key.check_known(table, [each.name for each in parameters if each.name != "namespace"])
    for each in parameters:
        if each.default is each.empty and each.name not in table:
            raise key.at(each.name).error("missing, and has no default")
    return [], dict(table)
