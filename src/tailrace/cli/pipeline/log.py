"""`tailrace pipeline log`: print the records of a commit log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.arguments import complete_pipeline
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, Output
from tailrace.cli.topic.message_format import compile_format

if TYPE_CHECKING:
    from tailrace.message import Message

_LINE: Final = r"%o\t%t\t%m\t%c\t%k\t%v"


@verb(
    "log",
    examples=r"""
    tailrace pipeline log lake --from 14 --to 15
    tailrace pipeline log lake --from -100 --namespace /^public[.]/
    tailrace pipeline log lake --from 14 --to 14 -f '%o %m %c %k %v'
    tailrace pipeline log lake --from @2026-01-01T00:00Z -o json
    """,
)
@click.argument("name", shell_complete=complete_pipeline)
@click.option("--from", "start", metavar="OFFSET_SPEC", default="earliest", help="First record.")
@click.option("--to", "end", metavar="OFFSET_SPEC", default="latest", help="Last record, included.")
@click.option("--namespace", metavar="FILTER", help="Name, or /regular expression/.")
@click.option("-f", "--format", "text", metavar="FORMAT", help="Output format, as for tail.")
@click.pass_obj
def log(
    context: CommandContext,
    name: str,
    start: str,
    end: str,
    namespace: str | None,
    text: str | None,
) -> None:
    """Print records of a commit log.

    A line has offset, time, mode, change, namespace and value.

    OFFSET_SPEC is an offset if the log has one partition, or an offset spec as for tailrace tail.
    """
    from tailrace.operations.pipeline.commit_log import read_log

    if text is not None and context.output is Output.JSON:
        raise click.UsageError("-f and -o json cannot be combined")
    in_json = context.output is Output.JSON
    write = _json_line if in_json else compile_format(_LINE if text is None else text)
    out = sys.stdout.buffer
    with context.open_hub() as hub:
        for batch in read_log(hub, name, start, end, namespace):
            out.write(b"".join([write(message) for message in batch]))
    out.flush()


def _json_line(message: Message[Any]) -> bytes:
    import msgspec

    from tailrace.operations.pipeline.commit_log import view_record

    return msgspec.json.encode(view_record(message)) + b"\n"
