"""Pipelines in files: TOML with the same words as Python.

Everything is read and checked, and nothing opened. What is wrong is a `ConfigError` that names the
file and the key: ``pipe.toml: writer.crm.urll: unknown · did you mean url?``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any, Final

import msgspec

from tailrace.errors import ConfigError
from tailrace.pipeline import plugins
from tailrace.pipeline.defining import pipeline_definition, writer_definition
from tailrace.pipeline.definition import Engine, PipelineDefinition, WriterDefinition
from tailrace.pipeline.function import Function
from tailrace.pipeline.key import Key
from tailrace.pipeline.options import decode_options, options_of
from tailrace.pipeline.variables import expanded

PIPELINE_KEYS: Final = (
    "name",
    "partitions",
    "catch_up",
    "log_bytes_max",
    "stop_timeout",
    "progress_interval",
    "engine",
)
_SETTINGS: Final = ("namespace", "on_error", "engine", "start", "batch_rows")
WRITER_KEYS: Final = ("type", "functions", *_SETTINGS)

_LISTS: Final = ("omit", "pick")
_POSITIONAL: Final = ("rename", "remap", "python")
_KEYWORDS: Final = ("skip", "opfilter", "pretty", "sql")
_FUNCTIONS: Final = (*_LISTS, *_POSITIONAL, *_KEYWORDS)


def load_pipeline(
    path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ
) -> PipelineDefinition:
    """The pipeline that a file defines."""
    origin = os.fspath(path)
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{origin} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{origin} is not TOML: {error}") from error
    return decode_pipeline(tables, origin, environ)


def decode_pipeline(
    tables: Mapping[str, Any], origin: str, environ: Mapping[str, str] = os.environ
) -> PipelineDefinition:
    """The pipeline that the tables of a file define; `origin` is the file's path."""
    key = Key(origin)
    key.check_known(tables, ("pipeline", "reader", "writer"))
    for name in ("pipeline", "reader", "writer"):
        if name not in tables:
            raise key.error(f"[{name}{'.NAME' if name == 'writer' else ''}] is missing")
    given = expanded(dict(tables), environ, key)
    settings = dict(key.at("pipeline").table(given["pipeline"]))
    key.at("pipeline").check_known(settings, PIPELINE_KEYS)
    if "name" not in settings:
        raise key.at("pipeline").at("name").error("missing, and has no default")
    engine = settings.pop("engine", Engine.SPARK)
    reader = _plugin(plugins.Kind.READER, given["reader"], key.at("reader"))
    writers_key = key.at("writer")
    writers = [
        _writer(name, table, settings["name"], engine, writers_key.at(name))
        for name, table in writers_key.table(given["writer"]).items()
    ]
    with key.at("pipeline").blamed():
        defined = pipeline_definition(reader=reader, writers=writers, **settings)
    return replace(defined, origin=origin)


def _writer(name: str, value: Any, pipeline: str, engine: str, key: Key) -> WriterDefinition:
    table = dict(key.table(value))
    settings = {"engine": engine} | {k: table.pop(k) for k in _SETTINGS if k in table}
    functions = table.pop("functions", [])
    writer = _plugin(plugins.Kind.WRITER, table, key)
    if not isinstance(functions, list):
        raise key.at("functions").error(f"{functions!r:.80} is no list of functions")
    settings["functions"] = [
        _function(each, key.at("functions").at(index)) for index, each in enumerate(functions)
    ]
    with key.blamed():
        return writer_definition(name, writer, pipeline=pipeline, **settings)


def _plugin(kind: plugins.Kind, value: Any, key: Key) -> Any:
    table = dict(key.table(value))
    name = table.pop("type", None)
    if name is None:
        known = ", ".join(plugins.plugins(kind))
        raise key.at("type").error("missing", f"valid: {known}")
    with key.at("type").blamed():
        declared = plugins.plugin(kind, name).load()
        _check_own(declared, WRITER_KEYS if kind is plugins.Kind.WRITER else ("type",))
    return decode_options(declared, table, key)


def _check_own(declared: type[msgspec.Struct], taken: tuple[str, ...]) -> None:
    for option in options_of(declared):
        if option.name in taken:
            raise ConfigError(
                f"{declared.__qualname__} has the option {option.name}",
                f"pipelines have these themselves: {', '.join(taken)}",
            )


def _function(value: Any, key: Key) -> Function:
    table = dict(key.table(value))
    namespace = table.pop("namespace", None)
    key.check_known(table, (*_FUNCTIONS, "namespace"))
    if len(table) != 1:
        raise key.error(f"has {len(table)} functions", 'valid: one, such as { omit = ["card"] }')
    ((name, argument),) = table.items()
    inner = key.at(name)
    # Functions stand above pipelines; as plug-ins are, they are found by name.
    make = getattr(import_module("tailrace.functions"), name)
    args, keywords = _arguments(name, argument, make, inner)
    with inner.blamed():
        made: Function = make(*args, **keywords, namespace=namespace)
    return made


def _arguments(name: str, argument: Any, make: Any, key: Key) -> tuple[list[Any], dict[str, Any]]:
    """What a function is called with, from what stands behind its name."""
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
