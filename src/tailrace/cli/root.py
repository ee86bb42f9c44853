"""The root of the command line."""

from __future__ import annotations

import os

import click

import tailrace
from tailrace.cli.command import Root
from tailrace.cli.commands import COMMANDS
from tailrace.cli.context import CommandContext


@click.group(
    cls=Root,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command has examples in its help: tailrace topic create --help",
)
@click.version_option(tailrace.__version__, message="tailrace %(version)s")
@click.pass_context
def root(context: click.Context) -> None:
    """Durable topics with ordered delivery, consumer groups and pipelines."""
    context.ensure_object(CommandContext)
    if os.environ.get("NO_COLOR"):
        context.color = False
