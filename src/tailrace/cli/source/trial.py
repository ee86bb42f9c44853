"""`tailrace source test`: connect to a source, and show sample rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext

if TYPE_CHECKING:
    from tailrace.operations.source.trial import SourceTrial


@verb(
    "test",
    examples="""
    tailrace source test shop.toml
    tailrace source test shop:source -o json
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.pass_obj
def test(context: CommandContext, file: str) -> None:
    """Test a source without writing anything.

    The test connects, checks every setting that could silently lose data, and shows up to five
    rows. Errors name the file and key, with exit status 2.
    """
    from tailrace.operations.source.load import load_source_definition
    from tailrace.operations.source.trial import try_source

    source = load_source_definition(file)
    if context.has_hub:
        with context.open_to_read() as hub:
            context.show(try_source(source, hub), _trial_text)
    else:
        context.show(try_source(source), _trial_text)


def _trial_text(trial: SourceTrial) -> str:
    import msgspec

    rows = format_amount(len(trial.rows), "row")
    lines = [f"{click.style(f'source {trial.source}', bold=True)}  {trial.reader}", f"  {rows}:"]
    for row in trial.rows:
        lines.append(f"  {row.namespace}  {msgspec.json.encode(row.document).decode()}")
    return "\n".join(lines)
