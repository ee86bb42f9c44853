"""`tailrace push`: push lines of standard input, or arguments, as messages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import topic_argument
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus, Output
from tailrace.errors import MessageTooLarge
from tailrace.terminal.progress import ProgressDisplay
from tailrace.terminal.signals import Signals

if TYPE_CHECKING:
    from tailrace.operations.topic.push import PushReport
    from tailrace.settings import HubSettings

_READ_BYTES = 1 << 16
_SEPARATOR_BYTES_MAX = 1 << 10


class StopSignal(Signals):
    """Ctrl-C and SIGTERM. The first ends the input; the lines read before are stored."""

    def __init__(self) -> None:
        super().__init__(self._stop)
        self._waiting = False

    def _stop(self) -> None:
        if self._waiting or self.count > 1:
            raise KeyboardInterrupt

    def read(self, stream: BinaryIO) -> bytes:
        """Wait for input and return it. Raise `KeyboardInterrupt` after a signal."""
        self._waiting = True
        try:
            if self.count:
                raise KeyboardInterrupt
            return stream.read1(_READ_BYTES)  # type: ignore[attr-defined, no-any-return]
        finally:
            self._waiting = False


def lines_of(
    stream: BinaryIO, stop: StopSignal, message_bytes_max: int, key_bytes_max: int
) -> Iterator[bytes]:
    """Yield the lines of a stream without newlines.

    Raise `MessageTooLarge` for a line that is longer than a key and a message, without reading it
    to its end.
    """
    line_bytes_max = key_bytes_max + message_bytes_max + _SEPARATOR_BYTES_MAX
    rest = b""
    number = 1
    while chunk := stop.read(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > line_bytes_max:
            limits = f"hub.message_bytes_max, and {key_bytes_max:,} for its key: hub.key_bytes_max"
            raise MessageTooLarge(
                f"line {number}", line_bytes_max, message_bytes_max, limits, at_least=True
            )
    if rest:
        yield rest


@verb(
    "push",
    examples="""
    echo '{"id": 1, "total": 9.5}' | tailrace push orders
    tailrace push orders '{"id": 1, "total": 9.5}' --key c7
    tailrace push orders -K: < orders.txt      (lines such as c7:{"id": 1})
    tailrace push orders -K, --header origin=import < orders.csv
    """,
)
@topic_argument
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-K", "separator", metavar="SEP", help="The key is the part of the line before SEP.")
@click.option("--key", "-k", help="Key of every message.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME=TEXT",
    help="Header of every message; repeatable.",
)
@click.option("--any-type", is_flag=True, help="Do not compare values with the topic's type.")
@click.pass_obj
def push_command(
    context: CommandContext,
    topic: str,
    values: tuple[str, ...],
    separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    any_type: bool,
) -> None:
    """Push lines of standard input, or VALUEs, as messages.

    A topic that was created with a type takes only JSON with the fields of that type. The first
    line that is not valid for the topic ends the push with exit status 1, Ctrl-C ends it
    with 3. The lines before are stored. Standard error shows their number.

    Messages of one key keep their order. An empty key (--key '', or a line that begins with SEP) is
    no key: such messages are spread over the partitions, and their order is not kept.
    """
    from tailrace.operations.topic.push import LineForm, PushEnd, check_may_push, push_lines

    if separator is not None and key is not None:
        raise click.UsageError("-K and --key cannot be combined")
    if separator == "":
        raise click.UsageError("-K requires a separator, for example -K:")
    form = LineForm(
        separator=None if separator is None else separator.encode(),
        key=None if key is None else key.encode(),
        headers=dict(map(_header, headers)) or None,
        noun="value" if values else "line",
    )
    settings = context.settings.hub
    opened = context.create_hub() if settings.auto_create else context.open_hub()
    with opened as hub, StopSignal() as stop, ProgressDisplay() as display:

        def show(done: int) -> None:
            display.show(lambda: _progress_line(done, display.seconds))

        check_may_push(hub, topic)
        lines = _input(values, stop, settings)
        pushed = push_lines(hub.topic(topic, any_type=any_type), lines, form, show)
    _report(context, pushed)
    if pushed.end is PushEnd.STOPPED:
        raise click.exceptions.Exit(ExitStatus.STOPPED)
    if pushed.end is not PushEnd.DONE:
        raise click.exceptions.Exit(ExitStatus.ERROR)


def _header(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"--header {text!r} is not NAME=TEXT")
    return name, value


def _input(values: tuple[str, ...], stop: StopSignal, settings: HubSettings) -> Iterable[bytes]:
    if values:
        return (value.encode("utf-8", "surrogateescape") for value in values)
    if sys.stdin.isatty():
        click.echo("one message per line; end with Ctrl-D", err=True)
    return lines_of(sys.stdin.buffer, stop, settings.message_bytes_max, settings.key_bytes_max)


def _progress_line(done: int, seconds: float) -> str:
    return f"{format_amount(done, 'message')}, {done / (seconds or 1):,.0f}/s"


def _report(context: CommandContext, pushed: PushReport) -> None:
    if pushed.reason:
        name, _, text = context.text(pushed.reason).partition(":")
        click.echo(f"{click.style(name, fg='red', bold=True)}:{text}", err=True)
    where = f", the last one at {pushed.last}" if pushed.last else ""
    click.echo(
        f"stored {format_amount(pushed.stored, 'message')} in {pushed.topic}{where}", err=True
    )
    if context.output is Output.JSON:
        click.echo(context.as_json(pushed))
