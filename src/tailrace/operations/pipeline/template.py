"""A template of a pipeline file: every key with its meaning and a valid value."""

from __future__ import annotations

from msgspec import Struct

from tailrace.operations.pipeline.plugins import sample, sample_lines, wrapped
from tailrace.operations.pipeline.toml_text import toml_value
from tailrace.pipeline.definition.options import options_of
from tailrace.pipeline.definition.plugins import PluginKind, plugin
from tailrace.pipeline.definition.settings import Engine, PipelineSettings, WriterSettings
from tailrace.pipeline.writer import Writer
from tailrace.spark.installed import Missing
from tailrace.topic.composite import check_short_name


def pipeline_file(reader: str, writer: str, name: str, missing: Missing | None = None) -> str:
    """Return the text of a file that defines a pipeline. The file loads without changes.

    `missing` is what this machine lacks to run Spark. Then the pipeline is on the direct engine,
    unless its writer needs Spark.
    """
    check_short_name("pipeline", name)
    direct = missing if runs_without_spark(writer) else None
    head = (
        f"A pipeline from {reader} to {writer}. Lines that begin with #name are defaults and",
        "examples: remove the # to set them. ${NAME} in any text is an environment variable.",
        "Test the file before running it: tailrace pipeline test FILE",
    )
    return "\n".join(
        [
            *(f"# {line}" for line in head),
            "",
            "[pipeline]",
            f"name = {toml_value(name)}",
            *_settings(PipelineSettings, direct),
            "",
            sample("reader", reader),
            "",
            sample("writer", writer),
            *_settings(WriterSettings, None),
            "",
        ]
    )


def runs_without_spark(writer: str) -> bool:
    """True if the direct engine can run a writer, given by its type."""
    declared: type[Writer] = plugin(PluginKind.WRITER, writer).load()
    return not declared.needs_spark


def _settings(declared: type[Struct], missing: Missing | None) -> list[str]:
    """Return the lines of all settings. With `missing`, the engine is set to direct."""
    lines = []
    for option in options_of(declared):
        shown = sample_lines(option)
        if missing is not None and option.name == "engine":
            why = f"{missing.what}. To run on Spark: {missing.install}; then remove this line."
            shown = [*shown[:-1], *wrapped(why), f"engine = {toml_value(Engine.DIRECT)}"]
        lines += shown
    return lines
