"""`tailrace pipeline init`: a file to begin with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tailrace.cli.command import verb
from tailrace.cli.session import Session


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written, and the name of the pipeline that it defines."""

    path: str
    pipeline: str


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
@click.option("--name", help="The pipeline's name.  [default: the file's, or READER-to-WRITER]")
@click.option("--yes", "-y", is_flag=True, help="Write over a file that is there.")
@click.pass_obj
def init(
    session: Session, reader: str, writer: str, file: str | None, name: str | None, yes: bool
) -> None:
    """Write a commented file that defines a pipeline.

    It loads as it is. FILE is NAME.toml unless another is given; - prints it.
    """
    from tailrace.operations.pipeline_file import pipeline_file

    if name is None:
        name = f"{reader}-to-{writer}" if file in (None, "-") else Path(str(file)).stem
    text = pipeline_file(reader, writer, name)
    if file == "-":
        click.echo(text, nl=False)
        return
    path = Path(file or f"{name}.toml")
    try:
        with path.open("w" if yes else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there: add --yes to write over it") from None
    session.show(WrittenFile(str(path), name), _written_text)


def _written_text(written: WrittenFile) -> str:
    return f"wrote {written.path}: look at it, then tailrace pipeline test {written.path}"
