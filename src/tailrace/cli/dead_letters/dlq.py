"""`tailrace dlq`: list, show, redeliver and discard dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import (
    consumer_argument,
    count_option,
    optional_reason,
    required_reason,
)
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
from tailrace.cli.dead_letters.requests import WAIT, request_letters
from tailrace.terminal.tables import facts, format_time, table

if TYPE_CHECKING:
    from tailrace.operations.dead_letters.listing import DeadLetterView, LetterGroup
    from tailrace.operations.dead_letters.resolve import ResolvedLetters

_positions = click.argument("positions", nargs=-1, metavar="POSITION...")
_optional_positions = click.argument("positions", nargs=-1, metavar="[POSITION]...")


class ConsumerFirst(Noun):
    """A noun whose verbs may follow the CONSUMER or precede it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the verb to the front."""
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            args[:2] = [args[1], args[0]]
        return super().parse_args(ctx, args)


@verb(
    "list",
    examples="""
    tailrace dlq lake list --by error
    tailrace dlq lake/crm list
    tailrace dlq billing list
    tailrace dlq mailer list --by error
    tailrace dlq list lake/crm -o json
    """,
)
@consumer_argument
@click.option(
    "--by", type=click.Choice(["error"]), help="Group the letters by error and count them."
)
@count_option(100)
@click.pass_obj
def list_(context: CommandContext, consumer: str, by: str | None, count: int) -> None:
    """List pending dead letters, oldest first.

    CONSUMER is a subscription such as mailer, a writer such as lake/crm, a group such as billing,
    a pipeline such as lake: all its writers, and the records that its reader could not read, or a
    source such as shop: the records that its tasks could not read. If a group and another consumer
    have the same name, write group:NAME, pipeline:NAME, source:NAME or subscription:NAME.
    """
    from tailrace.operations.dead_letters.listing import group_letters, list_letters

    with context.open_hub() as hub:
        if by is None:
            found = list_letters(hub, consumer, count + 1)
            context.show_stored(found[:count], _letters_table)
            if len(found) > count:
                click.echo("not all are shown: raise -n, or use --by error", err=True)
        else:
            context.show_stored(group_letters(hub, consumer), _groups_table)


def _letters_table(letters: list[DeadLetterView]) -> str:
    if not letters:
        return "no pending dead letters"
    return table(
        ("letter", "consumer", "record", "time", _key_title(letters[0]), "error"),
        (
            (
                each.position,
                each.consumer,
                each.origin,
                format_time(each.time),
                each.namespace,
                each.error,
            )
            for each in letters
        ),
    )


def _key_title(letter: DeadLetterView) -> str:
    """Return what the key of a record is: a namespace in a commit log, the key in other topics."""
    from tailrace.group.store.dead_letters import DEAD_LETTERS
    from tailrace.reserved_names import DEAD_LETTER_QUEUE_PREFIX

    of_consumers = letter.position.startswith((DEAD_LETTERS, DEAD_LETTER_QUEUE_PREFIX))
    return "key" if of_consumers else "namespace"


def _groups_table(groups: list[LetterGroup]) -> str:
    if not groups:
        return "no pending dead letters"
    return table(
        ("count", "consumer", "oldest", "first", "error"),
        (
            (group.count, group.consumer, format_time(group.oldest), group.first, group.error)
            for group in groups
        ),
    )


@verb(
    "show",
    examples="""
    tailrace dlq lake/crm show lake.dead-letters/0.0@3
    tailrace dlq show lake/crm lake.commits/0.0@14 -o json
    """,
)
@consumer_argument
@_positions
@click.pass_obj
def show(context: CommandContext, consumer: str, positions: tuple[str, ...]) -> None:
    """Show dead letters in full.

    POSITION is the position of the letter, its offset alone, or the position of the failed record.
    """
    from tailrace.operations.dead_letters.listing import show_letters

    _check_given(positions)
    with context.open_hub() as hub:
        context.show_stored(
            show_letters(hub, consumer, positions),
            lambda found: "\n\n".join(map(_letter_text, found)),
        )


def _letter_text(letter: DeadLetterView) -> str:
    pairs: list[tuple[str, Any]] = [
        ("letter", letter.position),
        ("consumer", letter.consumer),
        ("error", letter.error),
        *([] if letter.attempts is None else [("attempts", letter.attempts)]),
        *_failures(letter),
        ("record", letter.origin),
        ("time", format_time(letter.time)),
        (_key_title(letter), letter.namespace),
        ("change", f"{letter.op} ({letter.mode})"),
        *((f"header {name}", value) for name, value in letter.headers.items()),
        ("value", bytes(letter.value).decode() if letter.form == "json" else letter.value),
    ]
    trace = f"\n\n{letter.traceback.rstrip()}" if letter.traceback else ""
    return facts(pairs) + trace


def _failures(letter: DeadLetterView) -> Iterator[tuple[str, str]]:
    """Yield the number of each failed attempt that is known, and its time and error."""
    first = (letter.attempts or 0) - len(letter.failures) + 1
    for number, each in enumerate(letter.failures, first):
        yield f"attempt {number}", f"{format_time(each.at)} {each.error}"


_key = click.option("--key", "keys", multiple=True, help="Letters of this key. Repeatable.")
_error = click.option("--error", metavar="TEXT", help="Letters whose last error has this text.")
_after = click.option("--after", metavar="TIME", help="Letters since this time (UTC).")
_before = click.option("--before", metavar="TIME", help="Letters before this time (UTC).")
_wait = click.option(
    "--wait",
    metavar="DURATION",
    help=f"How long to wait for the workers of a subscription.  [default: {WAIT}]",
)
_no_wait = click.option(
    "--no-wait", is_flag=True, help="Do not wait for the workers of a subscription."
)
_FOR_SUBSCRIPTIONS: Final = {
    "keys": "--key",
    "error": "--error",
    "after": "--after",
    "before": "--before",
    "break_order": "--break-order",
    "attempts": "--attempts",
    "wait": "--wait",
    "no_wait": "--no-wait",
}
"""The options that only subscriptions have."""


@verb(
    "redeliver",
    examples="""
    tailrace dlq lake/crm redeliver lake.dead-letters/0.0@3
    tailrace dlq redeliver lake/crm --all
    tailrace dlq billing redeliver orders/0.1@42
    tailrace dlq mailer redeliver --key c7
    tailrace dlq mailer redeliver --error 'upstream inventory down' --attempts 5 --wait 10m
    """,
)
@consumer_argument
@_optional_positions
@_key
@_error
@_after
@_before
@click.option("--all", "everything", is_flag=True, help="Redeliver every pending dead letter.")
@click.option(
    "--break-order",
    is_flag=True,
    help="Redeliver letters of a subscription that are behind others of their key.",
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Calls of each letter of a subscription until its key has failed again.  [default: 1]",
)
@_wait
@_no_wait
@optional_reason
@click.pass_obj
def redeliver(context: CommandContext, /, consumer: str, **options: Any) -> None:
    """Redeliver dead letters to their consumer.

    The letters of a writer or group are appended to the commit log, or to the topic of the group,
    in their order, each for its writer or group alone. A group receives a redelivered message after
    the messages of its key that were pushed meanwhile. A letter of a reader, or of a writer, group
    or topic that was removed, cannot be redelivered: --all leaves it pending.

    The letters of a subscription are redelivered by its workers, those of each key in order. With
    --key, --error, --after, --before and --all these are all letters of the keys whose first letter
    meets every condition, and what comes behind them meanwhile. A POSITION, of the letter or of the
    message in the topic, must be that of the first letter of its key, unless --break-order is
    given. A letter that fails again stays where it is, and ends the redelivery of its key; with
    --attempts it is called as often before, with the delays of the retry policy. The command waits
    for the workers; it exits with status 1 if letters failed again, and with 3 if the workers have
    not ended in time or none runs: the request stays, and workers carry it out later.
    """
    _resolve_letters(context, consumer, "redeliver", options)


@verb(
    "discard",
    examples="""
    tailrace dlq lake/crm discard lake.dead-letters/0.0@3 --reason 'a test order'
    tailrace dlq discard lake 4 5 --reason 'lines of a broken export'
    tailrace dlq mailer discard orders/0.1@42 --reason 'the customer is gone'
    tailrace dlq mailer discard --key c7 --reason 'the customer is gone'
    """,
)
@consumer_argument
@_optional_positions
@_key
@_error
@_after
@_before
@_wait
@_no_wait
@required_reason
@click.pass_obj
def discard(context: CommandContext, /, consumer: str, **options: Any) -> None:
    """Discard dead letters, with a reason.

    The letters of a subscription are discarded by its workers, as for redeliver: those that meet
    every condition, and no others. The ones behind them stay dead letters until they are
    redelivered. --key, --error, --after, --before, --wait and --no-wait are for subscriptions.
    """
    _resolve_letters(context, consumer, "discard", options)


def _resolve_letters(
    context: CommandContext, consumer: str, verb_name: str, options: dict[str, Any]
) -> None:
    """Redeliver or discard letters: at once, or by the workers of a subscription."""
    from tailrace.operations.dead_letters import resolve
    from tailrace.operations.dead_letters.requests import subscription_named

    positions, everything = options["positions"], options.get("everything", False)
    conditions = [options[name] for name in ("keys", "error", "after", "before")]
    chosen = [bool(positions), everything, any(conditions)]
    if sum(chosen) != 1:
        others = ", --key, --error, --after or --before" + (
            ", or --all" * ("everything" in options)
        )
        raise click.UsageError(f"give at least one POSITION{others}, and only one of these kinds")
    with context.open_hub() as hub:
        subscription = subscription_named(hub, consumer)
        if subscription is not None:
            request_letters(context, hub, subscription, verb_name, options)
            return
        for name, option in _FOR_SUBSCRIPTIONS.items():
            if options.get(name):
                raise click.UsageError(f"{option} is for subscriptions")
        reason = options["reason"]
        if verb_name == "redeliver":
            done = resolve.redeliver(hub, consumer, None if everything else positions, reason)
        else:
            done = resolve.discard(hub, consumer, positions, reason)
        context.show(done, _resolution_text)


def _check_given(positions: tuple[str, ...]) -> None:
    if not positions:
        raise click.UsageError("give at least one POSITION")


def _resolution_text(done: ResolvedLetters) -> str:
    action = {"dlq redeliver": "redelivered", "dlq discard": "discarded"}[done.command]
    return f"{done.consumer}: {format_amount(len(done.letters), 'dead letter')} {action}"


dlq_command = ConsumerFirst(
    "dlq",
    [list_, show, redeliver, discard],
    help="Show, redeliver and discard dead letters.",
)
