"""`tailrace tail`: messages as text or JSON, up to the end or as they come."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.cli.arguments import complete_topic
from tailrace.cli.command import verb
from tailrace.cli.listening import wait_for_reader, when_reader_goes
from tailrace.cli.session import Output, Session
from tailrace.cli.signals import Signals
from tailrace.errors import InvalidValue

if TYPE_CHECKING:
    from tailrace.group.deliveries import Deliveries
    from tailrace.message import Message

Format = Callable[["Message[Any]"], bytes]

_FIELDS: Final[dict[str, Format]] = {
    "%k": lambda message: message.key_bytes or b"",
    "%v": lambda message: message.data,
    "%p": lambda message: str(message.id).rpartition("@")[0].encode(),
    "%o": lambda message: str(message.offset).encode(),
    "%m": lambda message: message.mode.name.lower().encode(),
    "%c": lambda message: message.op.name.lower().encode(),
    "%t": lambda message: message.timestamp.isoformat(timespec="milliseconds").encode(),
    "%h": lambda message: b",".join(
        name.encode() + b"=" + value for name, value in message.headers.items()
    ),
    "%%": lambda _message: b"%",
}
_ESCAPES: Final = {r"\n": b"\n", r"\t": b"\t", r"\0": b"\0", r"\\": b"\\"}
_FORMAT: Final = "%v"
_TOKEN: Final = re.compile(r"%.?|\\.?|[^%\\]+", re.DOTALL)


def compile_format(text: str) -> Format:
    r"""What writes a message as a format says. One that ends in no `\n` or `\0` gets a `\n`."""
    parts: list[Format] = []
    tokens = _TOKEN.findall(text)
    for token in tokens:
        if token[0] == "%":
            if token not in _FIELDS:
                raise click.BadParameter(f"{token} is none of {' '.join(_FIELDS)}")
            parts.append(_FIELDS[token])
            continue
        if token[0] == "\\" and token not in _ESCAPES:
            raise click.BadParameter(rf"{token} is none of {' '.join(_ESCAPES)}")
        parts.append(_constant(_ESCAPES.get(token, token.encode())))
    if not tokens or tokens[-1] not in (r"\n", r"\0"):
        parts.append(_constant(b"\n"))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(data: bytes) -> Format:
    return lambda _message: data


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
@click.option("--group", help="Share them with other consumers of a group; see above.")
@click.option("--from", "start", metavar="PLACE", help="Where to begin; see above.")
@click.option("--to", "end", metavar="PLACE", help="Where to end; see above.")
@click.option("--exit", "exits", is_flag=True, help="End at what is there now, do not follow.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("-f", "--format", "text", metavar="FORMAT", help="How to print; default: %v")
@click.pass_obj
def tail_command(
    session: Session,
    where: str,
    group: str | None,
    start: str | None,
    end: str | None,
    exits: bool,
    count: int | None,
    text: str | None,
) -> None:
    """Print the messages of a topic, in order per key.

    Order holds also where the topic was scaled.

    It goes on as messages come, until Ctrl-C; with --exit, --to or -n it ends. Nothing is
    remembered in the hub, except with --group: then each message goes to one of the consumers of
    the group, wherever they run, and is acknowledged once it is printed. A group may share several
    topics, 'orders.*'; --from matters when it is new, earliest unless given.

    \b
    PLACE is  earliest             before the oldest message
              latest               after the newest
              -100                 before the newest 100
              @2026-01-01T00:00Z   at that time (UTC where no zone is given)
              orders/1.7@42        at that record, of its partition alone; --to: with it

    It begins at -10, the newest 10; with --exit or --to, at earliest.

    \b
    FORMAT has  %k key  %v value  %p partition  %o offset  %t time  %h headers  %%
                %m mode (copy, sync, complete)  %c change (insert, update, delete)
                and \\n \\t \\0 \\\\; a newline is added where it ends in no \\n or \\0.
    """
    from tailrace.operations.edges import parse_edge
    from tailrace.operations.tailing import open_span, tail

    if text is not None and session.output is Output.JSON:
        raise click.UsageError("-f and -o json exclude each other")
    if group is not None or where.startswith("$"):
        if end is not None:
            raise click.UsageError(
                "--to and --group exclude each other; --exit ends a group's loop"
            )
        _tail_group(session, where, group, start, exits=exits, count=count, text=text)
        return
    if "*" in where:
        raise click.UsageError(
            f"{where!r} is a filter, and only a group has several topics: add --group NAME, or"
            " name one topic"
        )
    ends = exits or end is not None
    first = parse_edge(start or ("earliest" if ends else "-10"), "--from")
    last = parse_edge(end or "latest", "--to") if ends else None
    with session.open_hub() as hub:
        topic, span = open_span(hub, where, first, last)
        write = _writing(session, text, lambda _: topic)
        try:
            _print(tail(topic, span), write, count)
        except KeyboardInterrupt:
            if ends:
                raise


def _tail_group(
    session: Session,
    where: str,
    group: str | None,
    start: str | None,
    *,
    exits: bool,
    count: int | None,
    text: str | None,
) -> None:
    """Print as a consumer of a group. What is printed and flushed is acknowledged."""
    out = sys.stdout.buffer
    with session.open_hub() as hub:
        write = _writing(session, text, hub.topic)
        try:
            consumer = hub.tail(
                where,
                group=group,
                start=start or "earliest",
                until="end" if exits else None,
                limit=count,
            )
        except InvalidValue as error:
            if error.what != "start":
                raise
            raise InvalidValue("--from", start, error.valid) from None
        with Signals() as signals, when_reader_goes(consumer.shutdown):
            signals.noted = functools.partial(_stop, consumer, signals)
            with consumer as deliveries:
                for delivery in deliveries:
                    out.write(write(delivery))
                    out.flush()
        if signals.count and exits:
            raise KeyboardInterrupt


def _stop(consumer: Deliveries[Any], signals: Signals) -> None:
    """Let the loop end behind the message in hand; asked twice, end it here and now."""
    if signals.count > 1:
        raise KeyboardInterrupt
    consumer.shutdown()


def _print(messages: Iterator[list[Message[Any]]], write: Format, count: int | None) -> None:
    out = sys.stdout.buffer
    left = count
    for some in messages:
        if not some:
            wait_for_reader(0)
            continue
        chosen = some if left is None else some[:left]
        out.write(b"".join([write(message) for message in chosen]))
        out.flush()
        if left is not None:
            left -= len(chosen)
            if left == 0:
                return


def _writing(session: Session, text: str | None, topic_of: Callable[[str], Any]) -> Format:
    """What writes a message as is asked for."""
    if session.output is Output.JSON:
        return _as_json(topic_of)
    return compile_format(_FORMAT if text is None else text)


def _as_json(topic_of: Callable[[str], Any]) -> Format:
    import msgspec

    from tailrace.operations.message_view import view_message

    encode = msgspec.json.Encoder().encode
    topic_named = functools.cache(topic_of)
    return lambda message: encode(view_message(topic_named(message.topic), message)) + b"\n"
