"""`tailrace config`: the settings in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.cli.command import Noun, verb
from tailrace.cli.session import Output, Session
from tailrace.cli.tables import table

if TYPE_CHECKING:
    from tailrace.settings import SettingValue


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
    values = session.settings.values()
    if session.output is Output.JSON:
        session.show([_fields(value, origin) for value in values], str)
        return
    headings = ("setting", "value", "origin") if origin else ("setting", "value")
    click.echo(table(headings, (value[: len(headings)] for value in values)))


def _fields(value: SettingValue, origin: bool) -> dict[str, str]:
    shown = value._asdict()
    return shown if origin else {name: shown[name] for name in ("name", "value")}


config_command = Noun("config", [show], help="Look at the settings.")
