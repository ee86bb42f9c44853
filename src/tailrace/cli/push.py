"""`tailrace push`: lines of standard input, or arguments, as messages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import topic_argument
from tailrace.cli.command import verb
from tailrace.cli.progress import progress
from tailrace.cli.session import ExitStatus, Output, Session, as_json
from tailrace.cli.signals import Signals
from tailrace.errors import MessageTooLarge

if TYPE_CHECKING:
    from tailrace.operations.pushing import PushReport

_READ_BYTES = 1 << 16


class StopSignal(Signals):
    """Ctrl-C and SIGTERM: the first ends the reading of input, and what was read is stored."""

    def __init__(self) -> None:
        super().__init__(self._stop)
        self._waiting = False

    def _stop(self) -> None:
        if self._waiting or self.count > 1:
            raise KeyboardInterrupt

    def read(self, stream: BinaryIO) -> bytes:
        """What the stream has now; waits for it. `KeyboardInterrupt` once stopped."""
        self._waiting = True
        try:
            if self.count:
                raise KeyboardInterrupt
            return stream.read1(_READ_BYTES)  # type: ignore[attr-defined, no-any-return]
        finally:
            self._waiting = False


def lines_of(stream: BinaryIO, stop: StopSignal, line_bytes_max: int) -> Iterator[bytes]:
    """The lines of a stream, as they come, without newlines; `MessageTooLarge` bounds them."""
    rest = b""
    number = 1
    while chunk := stop.read(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        number += len(lines)
        if len(rest) > line_bytes_max:
            limit = "key and message together"
            raise MessageTooLarge(f"line {number}", len(rest), line_bytes_max, limit)
    if rest:
        yield rest


@verb(
    "push",
    examples="""
    echo '{"id": 1, "total": 9.5}' | tailrace push orders
    tailrace push orders '{"id": 1, "total": 9.5}' --key c7
    tailrace push orders -K: < orders.txt      (c7:{"id": 1} and so on, a line each)
    tailrace push orders -K, --header origin=import < orders.csv
    """,
)
@topic_argument
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-K", "separator", metavar="SEP", help="The key of a line is what stands before SEP.")
@click.option("--key", "-k", help="One key for all.")
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME=TEXT", help="For all; repeat."
)
@click.pass_obj
def push_command(
    session: Session,
    topic: str,
    values: tuple[str, ...],
    separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
) -> None:
    """Push lines of standard input, or VALUEs, as messages.

    The first line that does not fit the topic ends it, with its number and status 1; Ctrl-C ends
    it with status 3. All lines before are stored then, and counted on standard error.
    """
    from tailrace.operations.pushing import LineForm, PushEnd, push_lines

    if separator is not None and key is not None:
        raise click.UsageError("-K and --key exclude each other")
    if separator == "":
        raise click.UsageError("-K needs a separator, for example -K:")
    form = LineForm(
        separator=None if separator is None else separator.encode(),
        key=None if key is None else key.encode(),
        headers=dict(map(_header, headers)) or None,
    )
    settings = session.settings.hub
    bytes_max = settings.message_bytes_max + settings.key_bytes_max + _READ_BYTES
    opened = session.create_hub() if settings.auto_create else session.open_hub()
    with opened as hub, StopSignal() as stop, progress(_progress_line) as tell:
        found = hub.topic(topic)
        lines = _input(values, stop, bytes_max)
        pushed = push_lines(found, lines, form, tell)
    _report(session, pushed)
    if pushed.end is PushEnd.STOPPED:
        raise click.exceptions.Exit(ExitStatus.STOPPED)
    if pushed.end is not PushEnd.DONE:
        raise click.exceptions.Exit(ExitStatus.ERROR)


def _header(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.UsageError(f"--header {text!r} is not NAME=TEXT")
    return name, value


def _input(values: tuple[str, ...], stop: StopSignal, line_bytes_max: int) -> Iterable[bytes]:
    if values:
        return (value.encode("utf-8", "surrogateescape") for value in values)
    if sys.stdin.isatty():
        click.echo("one message a line; Ctrl-D ends", err=True)
    return lines_of(sys.stdin.buffer, stop, line_bytes_max)


def _progress_line(done: int, seconds: float) -> str:
    return f"{format_amount(done, 'message')}, {done / (seconds or 1):,.0f}/s"


def _report(session: Session, pushed: PushReport) -> None:
    if pushed.reason:
        name, _, text = pushed.reason.partition(":")
        click.echo(f"{click.style(name, fg='red', bold=True)}:{text}", err=True)
    where = f", the last at {pushed.last}" if pushed.last else ""
    click.echo(
        f"stored {format_amount(pushed.stored, 'message')} in {pushed.topic}{where}", err=True
    )
    if session.output is Output.JSON:
        click.echo(as_json(pushed))
