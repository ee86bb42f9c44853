"""`tailrace pipeline init`: write a template of a pipeline file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, and the pipeline that it defines.

    `engine` is the engine of its writers. `hint` is why it is not Spark, or what Spark lacks here.
    """

    path: str
    pipeline: str
    engine: str
    hint: str


@verb(
    "init",
    examples="""
    tailrace pipeline init file sql --name crm
    tailrace pipeline init file parquet lake.toml
    tailrace pipeline init file parquet -
    """,
)
@click.argument("reader")
@click.argument("writer")
@click.argument("file", required=False)
@click.option(
    "--name", help="Name of the pipeline.  [default: FILE without .toml, or READER-to-WRITER]"
)
@click.option("--yes", "-y", is_flag=True, help="Overwrite an existing file.")
@click.pass_obj
def init(
    context: CommandContext, reader: str, writer: str, file: str | None, name: str | None, yes: bool
) -> None:
    """Write a commented template of a pipeline file.

    The template loads without changes. FILE defaults to NAME.toml; - prints the template. If Spark
    or Java is not installed, the pipeline runs on the direct engine, and the output tells how to
    switch to Spark.
    """
    from tailrace.operations.pipeline.template import pipeline_file, runs_without_spark
    from tailrace.spark.installed import missing_for_spark

    if name is None:
        name = f"{reader}-to-{writer}" if file in (None, "-") else Path(str(file)).stem
    missing = missing_for_spark()
    text = pipeline_file(reader, writer, name, missing)
    if file == "-":
        click.echo(text, nl=False)
        return
    path = Path(file or f"{name}.toml")
    try:
        with path.open("w" if yes else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} exists: add --yes to overwrite it") from None
    engine, hint = "spark", ""
    if missing is not None:
        hint = f"{missing.what}; to use Spark: {missing.install}"
        if runs_without_spark(writer):
            engine = "direct"
            hint += f"; then remove the line engine from {path}"
    context.show(WrittenFile(str(path), name, engine, hint), _written_text)


def _written_text(written: WrittenFile) -> str:
    line = f"wrote {written.path}; edit it, then test it: tailrace pipeline test {written.path}"
    return f"{line}\nengine {written.engine}: {written.hint}" if written.hint else line
