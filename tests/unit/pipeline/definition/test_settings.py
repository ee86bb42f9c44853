"""Every setting is declared once, and known to Python, to files and to the sample file."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import asdict

from tailrace import Pipeline, functions, readers, writers
from tailrace.errors import ConfigError, InvalidValue
from tailrace.operations.pipeline.template import pipeline_file
from tailrace.operations.pipeline.toml_text import toml_value
from tailrace.pipeline.definition.options import options_of
from tailrace.pipeline.definition.settings import (
    CatchUp,
    Engine,
    OnError,
    PipelineSettings,
    Reading,
    Start,
    WriterSettings,
    read_settings,
)

PIPELINE: dict[str, Any] = {
    "partitions": 4,
    "engine": Engine.DIRECT,
    "reading": Reading.SHARED,
    "catch_up": CatchUp.ALL,
    "log_bytes_max": 1 << 20,
    "stop_timeout": timedelta(seconds=5),
    "progress_interval": timedelta(milliseconds=100),
    "spark": {"spark.executor.memory": "2g"},
}
WRITER: dict[str, Any] = {
    "namespace": "orders",
    "functions": (functions.omit("card"),),
    "on_error": OnError.PARK,
    "engine": Engine.DIRECT,
    "start": Start.LATEST,
    "batch_rows": 10,
}
DECLARED: list[tuple[type[Struct], dict[str, Any]]] = [
    (PipelineSettings, PIPELINE),
    (WriterSettings, WRITER),
]


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword-only parameters of a function with their defaults."""
    return {
        name: each.default
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }


@pytest.mark.parametrize(("declared", "others"), DECLARED, ids=["pipeline", "writer"])
def test_the_values_of_this_test_name_every_setting_and_are_no_defaults(
    declared: type[Struct], others: dict[str, Any]
) -> None:
    defaults = asdict(declared())
    assert others.keys() == defaults.keys()
    assert all(others[name] != defaults[name] for name in defaults)


def test_the_arguments_of_python_are_the_settings_with_their_defaults() -> None:
    assert keywords(Pipeline.__init__) == asdict(PipelineSettings())
    assert keywords(Pipeline.write) == asdict(WriterSettings())


def test_every_argument_of_python_reaches_the_definition() -> None:
    pipeline = Pipeline("lake", readers.file("in/*.jsonl"), **PIPELINE)
    pipeline.write("files", writers.parquet("out/"), **WRITER)
    assert asdict(pipeline.definition.settings) == PIPELINE
    assert asdict(pipeline.definition.writers[0].settings) == WRITER


def test_every_key_of_a_file_reaches_the_definition_as_the_argument_does(tmp_path: Path) -> None:
    pipeline, writer = PIPELINE, WRITER | {"functions": [{"omit": ["card"]}]}
    lines = ["[pipeline]", 'name = "lake"']
    lines += [f"{name} = {toml_value(value)}" for name, value in pipeline.items()]
    lines += ["[reader]", 'type = "file"', 'path = "in/*.jsonl"']
    lines += ["[writer.files]", 'type = "parquet"', 'path = "out/"']
    lines += [f"{name} = {toml_value(value)}" for name, value in writer.items()]
    file = tmp_path / "lake.toml"
    file.write_text("\n".join(lines))
    loaded = Pipeline.from_file(file)
    assert asdict(loaded.definition.settings) == PIPELINE
    assert asdict(loaded.definition.writers[0].settings) == WRITER


def test_the_sample_file_has_every_setting_and_loads_with_all_of_them_set(tmp_path: Path) -> None:
    lines = pipeline_file("file", "parquet", "lake").splitlines()
    for declared in (PipelineSettings, WriterSettings):
        for option in options_of(declared):
            assert option.meaning, option.name
            assert any(line.startswith(f"#{option.name} = ") for line in lines), option.name
    names = [*PipelineSettings.__struct_fields__, *WriterSettings.__struct_fields__]
    uncommented = [
        line.removeprefix("#") if line.partition(" = ")[0].removeprefix("#") in names else line
        for line in lines
    ]
    file = tmp_path / "lake.toml"
    file.write_text("\n".join(uncommented))
    tables = tomllib.loads(file.read_text())
    assert tables["pipeline"].keys() == {"name", *PipelineSettings.__struct_fields__}
    assert tables["writer"]["parquet"].keys() >= set(WriterSettings.__struct_fields__)
    assert Pipeline.from_file(file).settings == PipelineSettings()


def test_a_writer_without_an_engine_has_that_of_the_pipeline() -> None:
    pipeline = Pipeline("lake", readers.file("in/*.jsonl"), engine="direct")
    pipeline.write("files", writers.parquet("out/"))
    pipeline.write("others", writers.parquet("others/"), engine="spark")
    assert [each.engine for each in pipeline.writers] == [Engine.DIRECT, Engine.SPARK]


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("partitions", 0, "a whole number from 1 to 10,000"),
        ("partitions", True, "a whole number from 1 to 10,000"),
        ("engine", "sparkk", "spark, direct"),
        ("catch_up", "some", "none, all"),
        ("log_bytes_max", "1 GB", "64KiB"),
        ("stop_timeout", 30, "30s"),
        ("spark", "fast", "a table of Spark settings"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_with_the_valid_ones(
    name: str, value: object, valid: str
) -> None:
    with pytest.raises(InvalidValue, match=f"{name} is .* valid: .*{valid}"):
        read_settings(PipelineSettings, {name: value})


def test_an_engine_of_a_pipeline_that_is_not_valid_is_named_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    file.write_text(
        '[pipeline]\nname = "lake"\nengine = "sparkk"\n[reader]\ntype = "file"\npath = "x"\n'
        '[writer.files]\ntype = "parquet"\npath = "out/"\n'
    )
    with pytest.raises(ConfigError, match=r"lake.toml: pipeline.engine: .*valid: spark, direct"):
        Pipeline.from_file(file)
