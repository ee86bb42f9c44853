"""`tailrace config`: the settings in force."""

from __future__ import annotations

import click

from tailrace.cli.command import Noun, verb
from tailrace.cli.session import Session
from tailrace.cli.tables import table


@verb(
    "show",
    examples="""
    tailrace config show
    tailrace config show --origin
    TAILRACE_HUB__SYNC=none tailrace config show -o json
    """,
)
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@click.pass_obj
def show(session: Session, origin: bool) -> None:
    """Show every setting with its value: from a flag, the environment, a file or the default."""
    names = ("name", "value", "origin") if origin else ("name", "value")
    shown = [{name: getattr(value, name) for name in names} for value in session.settings.values()]
    session.show(shown, lambda rows: table(names, ([*row.values()] for row in rows)))


config_command = Noun("config", [show], help="Look at the settings.")
