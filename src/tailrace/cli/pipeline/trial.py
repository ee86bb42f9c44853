"""`tailrace pipeline test`: connect to everything, and show sample rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext

if TYPE_CHECKING:
    from tailrace.operations.pipeline.trial import Trial


@verb(
    "test",
    examples="""
    tailrace pipeline test lake.toml
    tailrace pipeline test lake:pipeline -o json
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.pass_obj
def test(context: CommandContext, file: str) -> None:
    """Test a pipeline without writing anything.

    The test connects to the source and every sink, and shows up to five rows as each writer would
    receive them; those of a source that the pipeline follows are read from its commit log.
    Errors name the file and key, with exit status 2.
    """
    from tailrace.operations.pipeline.load import load_definition
    from tailrace.operations.pipeline.trial import try_pipeline
    from tailrace.pipeline.definition.definition import FollowedSource

    definition = load_definition(file).definition
    if isinstance(definition.reader, FollowedSource) and context.has_hub:
        with context.open_to_read() as hub:
            context.show(try_pipeline(definition, hub), _trial_text)
    else:
        context.show(try_pipeline(definition), _trial_text)


def _trial_text(trial: Trial) -> str:
    import msgspec

    lines = [f"{click.style('reader', bold=True)}  {trial.reader}"]
    for writer in trial.writers:
        lines.append(f"{click.style(f'writer {writer.name}', bold=True)}  {writer.found}")
        rows = format_amount(len(writer.rows), "row")
        of = f"{rows} of {format_amount(trial.rows_seen, 'record')}"
        lines.append(f"  {of}{', before the function sql' if writer.before_sql else ''}:")
        for row in writer.rows:
            lines.append(f"  {row.namespace}  {msgspec.json.encode(row.document).decode()}")
    return "\n".join(lines)
