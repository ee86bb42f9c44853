"""`tailrace explain`: what something waits for and why, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import verb
from tailrace.cli.pipeline_arguments import complete_writer
from tailrace.cli.session import Session

if TYPE_CHECKING:
    from tailrace.operations.explanation import Explanation


@verb(
    "explain",
    examples="""
    tailrace explain lake/crm
    tailrace explain orders/1.7
    tailrace explain lake/crm -o json
    """,
)
@click.argument("subject", metavar="PIPELINE/WRITER|PARTITION", shell_complete=complete_writer)
@click.pass_obj
def explain_command(session: Session, subject: str) -> None:
    """Say what a writer or a partition waits for, and what helps."""
    from tailrace.operations.explain import explain

    with session.open_hub() as hub:
        session.show(explain(hub, subject), _explanation_text)


def _explanation_text(found: Explanation) -> str:
    names = [fact.name for fact in found.facts] + [each.name for each in found.remedies]
    width = max(map(len, names), default=0)
    commands = max((len(each.command) for each in found.remedies), default=0)
    state, space, rest = found.headline.partition(" ")
    colour = "red" if found.waits else "green"
    lines = [f"{click.style(state, fg=colour, bold=True)}{space}{rest}"]
    lines += [f"  {fact.name:<{width}}  {fact.what}" for fact in found.facts]
    for each in found.remedies:
        lines.append(f"  {each.name:<{width}}  {each.command:<{commands}}  {each.outcome}".rstrip())
    return "\n".join(lines)
