"""Definitions of sources, of pipelines that follow one, and of pipelines that many tasks read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace import ConfigError, InvalidName, InvalidValue, Pipeline, Source, readers
from tailrace.pipeline.definition.definition import FollowedSource
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter

READER = '[reader]\ntype = "file"\npath = "in/*.jsonl"\n'
WRITER = '[writer.files]\ntype = "file"\npath = "out"\nengine = "direct"\n'


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    return file


def refused(tmp_path: Path, text: str) -> str:
    """Return why the file defines no source, without the name of the file."""
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        Source.from_file(file)
    return str(caught.value).removeprefix(f"{file}: ")


def followed(source: Source, **settings: object) -> Pipeline:
    pipeline = Pipeline("lake", source, **settings)  # type: ignore[arg-type]
    return pipeline.write("crm", RecordingWriter("out"), engine="direct")


def test_a_file_defines_a_source_with_paths_relative_to_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, f'[source]\nname = "shop"\npartitions = 4\n{READER}')
    source = Source.from_file(file)
    assert (source.name, source.partitions, source.origin) == ("shop", 4, str(file))
    assert source.reader == readers.file(str(tmp_path / "in" / "*.jsonl"))
    assert not source.of_pipeline


def test_a_file_of_a_source_is_no_pipeline_and_names_the_command_that_runs_it(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, f'[source]\nname = "shop"\n{READER}')
    with pytest.raises(ConfigError, match=f"tailrace source run {file}"):
        Pipeline.from_file(file)


def test_sizes_of_the_file_reader_are_written_with_units(tmp_path: Path) -> None:
    sizes = 'range_bytes = "64MiB"\nline_bytes_max = "2MiB"\n'
    reader = Source.from_file(written(tmp_path, f'[source]\nname = "shop"\n{READER}{sizes}')).reader
    assert isinstance(reader, readers.FileReader)
    assert (reader.range_bytes, reader.line_bytes_max) == (64 << 20, 2 << 20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (READER, "[source] is missing"),
        ('[source]\nname = "shop"\n', "[reader] is missing"),
        (f"[source]\n{READER}", "source.name: missing, and has no default"),
        (f'[source]\nname = "."\n{READER}', "source: '.' is not a valid source name"),
        (f'[source]\nname = "s"\npartitions = 0\n{READER}', "source.partitions: partitions is 0"),
        (f'[source]\nname = "s"\npartition = 4\n{READER}', "source.partition: unknown"),
        (f'[source]\nname = "s"\n{READER}[writer.a]\n', "writer: unknown"),
        ('[source]\nname = "s"\n[reader]\ntype = "flie"\n', "reader.type: no reader 'flie'"),
    ],
)
def test_an_invalid_value_of_a_source_is_named_by_its_key(
    tmp_path: Path, text: str, said: str
) -> None:
    assert refused(tmp_path, text).startswith(said)


def test_the_file_of_a_pipeline_that_many_tasks_read_gives_its_source(tmp_path: Path) -> None:
    shared = '[pipeline]\nname = "lake"\nreading = "shared"\npartitions = 2\n'
    file = written(tmp_path, shared + READER + WRITER)
    source = Source.from_file(file)
    assert (source.name, source.partitions, source.origin) == ("lake", 2, str(file))
    assert source.of_pipeline
    assert Pipeline.from_file(file).source.reader == source.reader


def test_a_pipeline_that_reads_alone_gives_no_source(tmp_path: Path) -> None:
    alone = f'[pipeline]\nname = "lake"\n{READER}{WRITER}'
    assert refused(tmp_path, alone).startswith("pipeline.reading: reading is 'alone' · valid: sh")
    follows = f'[pipeline]\nname = "lake"\nsource = "shop"\n{WRITER}'
    said = refused(tmp_path, follows)
    assert said.startswith("pipeline.source: pipeline 'lake' only follows source 'shop'")
    assert "tailrace source run FILE" in said


def test_a_pipeline_on_a_source_consumes_the_log_of_the_source(tmp_path: Path) -> None:
    file = written(tmp_path, f'[pipeline]\nname = "lake"\nsource = "shop"\n{WRITER}')
    for pipeline in (Pipeline.from_file(file), followed(Source("shop", CountingReader(1)))):
        assert pipeline.reader == FollowedSource("shop")
        definition = pipeline.definition
        assert (definition.commit_log, definition.dead_letters) == (
            "shop.commits",
            "lake.dead-letters",
        )


def test_a_pipeline_has_a_reader_or_a_source(tmp_path: Path) -> None:
    both = f'[pipeline]\nname = "lake"\nsource = "shop"\n{READER}{WRITER}'
    assert refused(tmp_path, both).startswith("reader: the pipeline follows a source")
    neither = f'[pipeline]\nname = "lake"\n{WRITER}'
    assert refused(tmp_path, neither).startswith("[reader] is missing")
    assert refused(tmp_path, neither.replace("lake", 'lake"\nsource = ".')).startswith(
        "pipeline.source: '.' is not a valid source name"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("partitions", 4), ("reading", "shared"), ("catch_up", "all"), ("log_bytes_max", "1MiB")],
)
def test_a_pipeline_on_a_source_has_no_setting_of_a_reader(setting: str, value: object) -> None:
    pipeline = followed(Source("shop", CountingReader(1)), **{setting: value})
    with pytest.raises(InvalidValue, match=f"^{setting} is .* · valid: not to set it"):
        _ = pipeline.definition


def test_a_pipeline_on_a_source_has_a_name_of_its_own() -> None:
    pipeline = followed(Source("lake", CountingReader(1)))
    with pytest.raises(InvalidName, match="a name that is not that of its source"):
        _ = pipeline.definition
