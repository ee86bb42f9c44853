"""`tailrace dlq`: dead letters, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tailrace.amount import format_amount
from tailrace.cli.command import Noun, verb
from tailrace.cli.pipeline_arguments import consumer_argument
from tailrace.cli.session import Session
from tailrace.cli.tables import facts, moment, table

if TYPE_CHECKING:
    from tailrace.operations.dead_letters import Resolution
    from tailrace.operations.letters import DeadLetter, LetterGroup

_positions = click.argument("positions", nargs=-1, metavar="POSITION...")


class ConsumerFirst(Noun):
    """A noun whose verbs may be said behind the CONSUMER they are about, or before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb in front."""
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            args[:2] = [args[1], args[0]]
        return super().parse_args(ctx, args)


@verb(
    "list",
    examples="""
    tailrace dlq lake list --by error
    tailrace dlq lake/crm list
    tailrace dlq list lake/crm -o json
    """,
)
@consumer_argument
@click.option("--by", type=click.Choice(["error"]), help="Group them, with how many there are.")
@click.option(
    "-n", "--count", type=click.IntRange(min=1), default=100, show_default=True, help="How many."
)
@click.pass_obj
def list_(session: Session, consumer: str, by: str | None, count: int) -> None:
    """List the dead letters that wait, oldest first.

    CONSUMER is a writer such as lake/crm, or a pipeline such as lake: all its writers, and what its
    reader could not read.
    """
    from tailrace.operations import letters

    with session.open_hub() as hub:
        if by is None:
            found = letters.list_letters(hub, consumer, count + 1)
            session.show(found[:count], _letters_table)
            if len(found) > count:
                click.echo(f"more than {count:,} wait: see others with -n, or --by error", err=True)
        else:
            session.show(letters.group_letters(hub, consumer), _groups_table)


def _letters_table(letters: list[DeadLetter]) -> str:
    if not letters:
        return "no dead letters wait"
    return table(
        ("letter", "consumer", "record", "time", "namespace", "error"),
        (
            (
                each.position,
                each.consumer,
                each.origin,
                moment(each.time),
                each.namespace,
                each.error,
            )
            for each in letters
        ),
    )


def _groups_table(groups: list[LetterGroup]) -> str:
    if not groups:
        return "no dead letters wait"
    return table(
        ("count", "consumer", "oldest", "first", "error"),
        (
            (group.count, group.consumer, moment(group.oldest), group.first, group.error)
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
def show(session: Session, consumer: str, positions: tuple[str, ...]) -> None:
    """Show dead letters whole.

    POSITION is that of the letter, its offset alone, or the position that the record had.
    """
    from tailrace.operations import letters

    _check_given(positions)
    with session.open_hub() as hub:
        session.show(
            letters.show_letters(hub, consumer, positions),
            lambda found: "\n\n".join(map(_letter_text, found)),
        )


def _letter_text(letter: DeadLetter) -> str:
    pairs: list[tuple[str, Any]] = [
        ("letter", letter.position),
        ("consumer", letter.consumer),
        ("error", letter.error),
        ("record", letter.origin),
        ("time", moment(letter.time)),
        ("namespace", letter.namespace),
        ("what", f"{letter.op} ({letter.mode})"),
        *((f"header {name}", value) for name, value in letter.headers.items()),
        ("value", bytes(letter.value).decode() if letter.form == "json" else letter.value),
    ]
    return facts(pairs)


@verb(
    "redeliver",
    examples="""
    tailrace dlq lake/crm redeliver lake.dead-letters/0.0@3
    tailrace dlq redeliver lake/crm --all
    """,
)
@consumer_argument
@_positions
@click.option("--all", "everything", is_flag=True, help="All that wait and can be.")
@click.pass_obj
def redeliver(
    session: Session, consumer: str, positions: tuple[str, ...], everything: bool
) -> None:
    """Send dead letters to their writer again.

    They go to the end of the commit log, for that writer alone, in their order.
    """
    from tailrace.operations import dead_letters

    if everything == bool(positions):
        raise click.UsageError("give POSITIONs, or --all")
    with session.open_hub() as hub:
        chosen = None if everything else positions
        session.show(dead_letters.redeliver(hub, consumer, chosen), _resolution_text)


@verb(
    "discard",
    examples="""
    tailrace dlq lake/crm discard lake.dead-letters/0.0@3 --reason 'a test order'
    tailrace dlq discard lake 4 5 --reason 'lines of a broken export'
    """,
)
@consumer_argument
@_positions
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the audit.")
@click.pass_obj
def discard(session: Session, consumer: str, positions: tuple[str, ...], reason: str) -> None:
    """Give dead letters up, for a reason."""
    from tailrace.operations import dead_letters

    _check_given(positions)
    with session.open_hub() as hub:
        done = dead_letters.discard(hub, consumer, positions, reason)
        session.show(done, _resolution_text)


def _check_given(positions: tuple[str, ...]) -> None:
    if not positions:
        raise click.UsageError("give one POSITION or more")


def _resolution_text(done: Resolution) -> str:
    deed = {"dlq redeliver": "sent again", "dlq discard": "given up"}[done.command]
    return f"{done.consumer}: {format_amount(len(done.letters), 'dead letter')} {deed}"


dlq_command = ConsumerFirst(
    "dlq",
    [list_, show, redeliver, discard],
    help="Look at dead letters, send them again or give them up.",
)
