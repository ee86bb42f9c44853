"""The root of the command line: what there is, and where it is found."""

from __future__ import annotations

import os
from typing import Final

import click

import tailrace
from tailrace.cli.command import Root
from tailrace.cli.session import Session

COMMANDS: Final = {
    "topic": "tailrace.cli.topic",
    "push": "tailrace.cli.push",
    "tail": "tailrace.cli.tail",
    "status": "tailrace.cli.status",
    "lag": "tailrace.cli.lag",
    "explain": "tailrace.cli.explain",
    "group": "tailrace.cli.group",
    "pipeline": "tailrace.cli.pipeline",
    "dlq": "tailrace.cli.dlq",
    "audit": "tailrace.cli.audit",
    "reader": "tailrace.cli.reader",
    "writer": "tailrace.cli.writer",
    "segment": "tailrace.cli.segment",
    "hub": "tailrace.cli.hub",
    "config": "tailrace.cli.config",
    "bench": "tailrace.cli.bench",
    "demo": "tailrace.cli.demo",
    "completion": "tailrace.cli.completion",
    "version": "tailrace.cli.version",
}


@click.group(
    cls=Root,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command has examples: tailrace topic create --help",
)
@click.version_option(tailrace.__version__, message="tailrace %(version)s")
@click.pass_context
def root(context: click.Context) -> None:
    """Durable topics, in order per key, that can be re-scaled while they run."""
    context.ensure_object(Session)
    if os.environ.get("NO_COLOR"):
        context.color = False
