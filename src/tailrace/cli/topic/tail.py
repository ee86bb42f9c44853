"""`tailrace tail`: print messages as text or JSON, and follow the topic."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.arguments import complete_topic
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, Output
from tailrace.cli.terminal.broken_pipe import wait_for_closed_pipe, when_pipe_closes
from tailrace.cli.topic.message_format import MessageFormat, compile_format
from tailrace.errors import InvalidValue
from tailrace.terminal.signals import Signals

if TYPE_CHECKING:
    from tailrace.group.consumer.consumer import Consumer
    from tailrace.group.consumer.options import TailOptions
    from tailrace.message import Message

_FORMAT: Final = "%v"


@verb(
    "tail",
    examples=r"""
    tailrace tail orders
    tailrace tail orders --from earliest --exit
    tailrace tail orders --from -100 --exit -f '%p@%o %k %v'
    tailrace tail orders --from @2026-01-01T00:00Z --to @2026-01-02T00:00Z -o json
    tailrace tail orders --from orders/0.3@42 -n 1
    tailrace tail orders --group billing
    tailrace tail 'orders.*' --group billing --from latest -o json
    """,
)
@click.argument("where", metavar="TOPIC|PARTITION", shell_complete=complete_topic)
@click.option("--group", help="Consume as a member of this group; see above.")
@click.option("--from", "start", metavar="OFFSET_SPEC", help="Start; see above.")
@click.option("--to", "end", metavar="OFFSET_SPEC", help="End; see above.")
@click.option("--exit", "exits", is_flag=True, help="Exit at the current end of the topic.")
@click.option(
    "-n", "--count", type=click.IntRange(min=1), help="Exit after this number of messages."
)
@click.option("--control", is_flag=True, help="Include control records of a pipeline.")
@click.option("-f", "--format", "text", metavar="FORMAT", help="Output format; default: %v")
@click.pass_obj
def tail_command(
    context: CommandContext,
    where: str,
    group: str | None,
    start: str | None,
    end: str | None,
    exits: bool,
    count: int | None,
    control: bool,
    text: str | None,
) -> None:
    """Print the messages of a topic, in order per key.

    Scaling the topic does not change the order. The command follows the topic until Ctrl-C; --exit,
    --to and -n end it earlier.

    With --group the command consumes as a member of the group: each message is delivered to one
    member and is acknowledged after it is printed. A message counts as printed once it is written
    to the pipe, even if the reading program, such as head, ends first. Use -n to limit the number.
    A group may consume several topics, 'orders.*'.
    --from applies only to a new group and defaults to earliest. Without --group nothing is stored.

    \b
    OFFSET_SPEC is  earliest             the oldest message
                    latest               after the newest message
                    -100                 the newest 100 messages
                    @2026-01-01T00:00Z   that time (UTC if no zone is given)
                    orders/1.7@42        that message, of its partition only;
                                         --to includes it

    The default start is -10; with --exit or --to it is earliest.

    \b
    FORMAT has  %k key  %v value  %p partition  %o offset  %t time  %h headers  %%
                %m mode (copy, sync, complete)
                %c change (insert, update, delete; command, noop)
                \\n \\t \\0 \\\\; a newline is added unless it ends in \\n or \\0.
    """
    from tailrace.operations.topic.tail import open_range, tail
    from tailrace.topic.offset_spec import parse_offset_spec

    if text is not None and context.output is Output.JSON:
        raise click.UsageError("-f and -o json cannot be combined")
    if group is not None or where.startswith("$"):
        if end is not None:
            raise click.UsageError("--to and --group cannot be combined; with --group, use --exit")
        write_as = functools.partial(_writing, context, text)
        options: TailOptions = {
            "until": "end" if exits else None,
            "limit": count,
            "control": control,
        }
        _tail_group(context, where, group, start, options, write_as)
        return
    if "*" in where:
        raise click.UsageError(
            f"{where!r} is a filter, and only a group consumes several topics: add --group NAME,"
            " or name one topic"
        )
    ends = exits or end is not None
    first = parse_offset_spec(start or ("earliest" if ends else "-10"), "--from")
    last = parse_offset_spec(end or "latest", "--to") if ends else None
    with context.open_hub() as hub:
        topic, wanted = open_range(hub, where, first, last)
        write = _writing(context, text, lambda _: topic)
        try:
            _print(tail(topic, wanted, control=control), write, count)
        except KeyboardInterrupt:
            if ends:
                raise


def _tail_group(
    context: CommandContext,
    where: str,
    group: str | None,
    start: str | None,
    options: TailOptions,
    write_as: Callable[[Callable[[str], Any]], MessageFormat],
) -> None:
    """Print as a member of a group. A message is acknowledged after it is flushed."""
    out = sys.stdout.buffer
    with context.open_hub() as hub:
        write = write_as(hub.topic)
        try:
            consumer = hub.tail(where, group=group, start=start or "earliest", **options)
        except InvalidValue as error:
            if error.what != "start":
                raise
            raise InvalidValue("--from", start, error.valid, error.remedy) from None
        with Signals() as signals, when_pipe_closes(consumer.shutdown):
            signals.received = functools.partial(_stop, consumer, signals)
            with consumer:
                for delivery in consumer:
                    out.write(write(delivery))
                    out.flush()
        if signals.count and options["until"]:
            raise KeyboardInterrupt


def _stop(consumer: Consumer[Any], signals: Signals) -> None:
    """Stop after the message in flight. A second signal stops at once."""
    if signals.count > 1:
        raise KeyboardInterrupt
    consumer.shutdown()


def _print(messages: Iterator[list[Message[Any]]], write: MessageFormat, count: int | None) -> None:
    out = sys.stdout.buffer
    left = count
    for batch in messages:
        if not batch:
            wait_for_closed_pipe(0)
            continue
        chosen = batch if left is None else batch[:left]
        out.write(b"".join([write(message) for message in chosen]))
        out.flush()
        if left is not None:
            left -= len(chosen)
            if left == 0:
                return


def _writing(
    context: CommandContext, text: str | None, topic_of: Callable[[str], Any]
) -> MessageFormat:
    """Return the function that formats a message."""
    if context.output is Output.JSON:
        return _as_json(topic_of)
    return compile_format(_FORMAT if text is None else text)


def _as_json(topic_of: Callable[[str], Any]) -> MessageFormat:
    import msgspec

    from tailrace.operations.topic.message_view import view_message

    encode = msgspec.json.Encoder().encode
    topic_named = functools.cache(topic_of)
    return lambda message: encode(view_message(topic_named(message.topic), message)) + b"\n"
