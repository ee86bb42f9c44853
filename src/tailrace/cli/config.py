"""`tailrace config`: the settings in force."""

from __future__ import annotations

import click

from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.terminal.tables import table


@verb(
    "show",
    examples="""
    tailrace config show
    tailrace config show --origin
    TAILRACE_HUB__SYNC=none tailrace config show -o json
    """,
)
@click.option("--origin", is_flag=True, help="Show the origin of each value.")
@click.pass_obj
def show(context: CommandContext, origin: bool) -> None:
    """Show every setting and its value.

    A flag overrides the environment, the environment a file, and a file the default.
    """
    names = ("name", "value", "origin") if origin else ("name", "value")
    shown = [{name: getattr(value, name) for name in names} for value in context.settings.values()]
    context.show(shown, lambda rows: table(names, ([*row.values()] for row in rows)))


config_command = Noun("config", [show], help="Show the settings.")
