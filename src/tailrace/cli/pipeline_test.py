"""`tailrace pipeline test`: does everything connect, and what would writers get?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.session import Session

if TYPE_CHECKING:
    from tailrace.operations.preflight import Trial


@verb(
    "test",
    examples="""
    tailrace pipeline test lake.toml
    tailrace pipeline test lake:pipeline -o json
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.pass_obj
def test(session: Session, file: str) -> None:
    """Connect to everything, and show up to five rows transformed.

    They are shown as each writer would get them. Nothing is written. What is wrong is named by file
    and key, with status 2.
    """
    from tailrace.operations.pipeline_run import load_definition
    from tailrace.operations.preflight import try_pipeline

    session.show(try_pipeline(load_definition(file).definition), _trial_text)


def _trial_text(trial: Trial) -> str:
    import msgspec

    lines = [f"{click.style('reader', bold=True)}  {trial.reader}"]
    for writer in trial.writers:
        lines.append(f"{click.style(f'writer {writer.name}', bold=True)}  {writer.found}")
        of = f"{len(writer.rows)} rows of {format_amount(trial.rows_seen, 'record')}"
        lines.append(f"  {of}{', before its SQL, which Spark runs' if writer.before_sql else ''}:")
        for row in writer.rows:
            lines.append(f"  {row.namespace}  {msgspec.json.encode(row.document).decode()}")
    return "\n".join(lines)
