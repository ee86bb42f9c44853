"""`tailrace dlq`: list, show, redeliver and discard dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import consumer_argument, count_option, required_reason
from tailrace.cli.command import Noun, verb
from tailrace.cli.context import CommandContext
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

    CONSUMER is a writer such as lake/crm, a group such as billing, or a pipeline such as lake: all
    its writers, and the records that its reader could not read. If a group and a pipeline have the
    same name, write group:NAME or pipeline:NAME.
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

    return "key" if letter.position.startswith(DEAD_LETTERS) else "namespace"


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
        ("record", letter.origin),
        ("time", format_time(letter.time)),
        (_key_title(letter), letter.namespace),
        ("change", f"{letter.op} ({letter.mode})"),
        *((f"header {name}", value) for name, value in letter.headers.items()),
        ("value", bytes(letter.value).decode() if letter.form == "json" else letter.value),
    ]
    return facts(pairs)


@verb(
    "redeliver",
    examples="""
    tailrace dlq lake/crm redeliver lake.dead-letters/0.0@3
    tailrace dlq redeliver lake/crm --all
    tailrace dlq billing redeliver orders/0.1@42
    """,
)
@consumer_argument
@_optional_positions
@click.option("--all", "everything", is_flag=True, help="Redeliver every pending dead letter.")
@click.pass_obj
def redeliver(
    context: CommandContext, consumer: str, positions: tuple[str, ...], everything: bool
) -> None:
    """Deliver dead letters to their writers or groups again.

    The records are appended to the commit log, or to the topic of the group, in their order, each
    for its writer or group alone. A group receives a redelivered message after the messages of its
    key that were pushed meanwhile. A letter of a reader, or of a writer, group or topic that was
    removed, cannot be redelivered: --all leaves it pending.
    """
    from tailrace.operations.dead_letters import resolve

    if everything == bool(positions):
        raise click.UsageError("give at least one POSITION, or --all")
    with context.open_hub() as hub:
        chosen = None if everything else positions
        context.show(resolve.redeliver(hub, consumer, chosen), _resolution_text)


@verb(
    "discard",
    examples="""
    tailrace dlq lake/crm discard lake.dead-letters/0.0@3 --reason 'a test order'
    tailrace dlq discard lake 4 5 --reason 'lines of a broken export'
    """,
)
@consumer_argument
@_positions
@required_reason
@click.pass_obj
def discard(
    context: CommandContext, consumer: str, positions: tuple[str, ...], reason: str
) -> None:
    """Discard dead letters, with a reason."""
    from tailrace.operations.dead_letters import resolve

    _check_given(positions)
    with context.open_hub() as hub:
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
