"""`tailrace group`: who shares which topics, how far they are, and what moved when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from tailrace.amount import format_amount
from tailrace.cli.asking import asks, carry_out
from tailrace.cli.command import Noun, verb
from tailrace.cli.session import Session
from tailrace.cli.tables import facts, instant, moment, table
from tailrace.cli.watching import show_once_or_watch, watches

if TYPE_CHECKING:
    from tailrace.group.history import HistoryLine
    from tailrace.group.view import GroupDetail, GroupSummary


def complete_group(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The groups of the hub that begin so; none where there is no hub."""
    try:
        from tailrace.group.definition import group_names

        with context.ensure_object(Session).open_hub() as hub:
            names = group_names(hub.backend)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    except Exception:  # whatever is wrong, a shell that completes must not be disturbed
        return []


group_argument = click.argument("group", shell_complete=complete_group)
reason_option = click.option("--reason", default="", help="Why; the audit keeps it.")


@verb(
    "list",
    examples="""
    tailrace group list
    tailrace group list -o json
    """,
)
@watches
@click.pass_obj
def list_(session: Session, watch: bool) -> None:
    """List all groups."""
    from tailrace.group.view import list_groups

    with session.open_hub() as hub:
        show_once_or_watch(
            lambda: session.show(list_groups(hub.backend), _groups_table), watch=watch
        )


def _groups_table(groups: list[GroupSummary]) -> str:
    if not groups:
        return "no groups; a consumer makes one: tailrace tail TOPIC --group NAME"
    return table(
        ("group", "topics", "consumers", "standing by", "open", "waiting", "behind"),
        (
            (g.name, _topics(g), g.consumers, g.standing_by, g.open, g.waiting, g.behind)
            for g in groups
        ),
    )


def _topics(group: GroupSummary) -> str:
    return f"{group.filter} (deleted)" if group.topic_deleted else group.filter


@verb(
    "show",
    examples="""
    tailrace group show billing
    tailrace group show billing --watch
    """,
)
@group_argument
@watches
@click.pass_obj
def show(session: Session, group: str, watch: bool) -> None:
    """Show a group: its leader, its consumers, and who consumes which stream."""
    from tailrace.group.view import show_group

    with session.open_hub() as hub:
        show_once_or_watch(
            lambda: session.show(show_group(hub.backend, group), _group_text), watch=watch
        )


def _group_text(group: GroupDetail) -> str:
    summary = group.summary
    led = "nobody" if group.leader is None else f"{group.leader}, term {group.term}"
    head = facts(
        [
            ("group", summary.name),
            ("topics", _topics(summary)),
            ("started", f"{group.start}, {moment(group.created)}"),
            ("led by", led),
            ("behind", summary.behind),
        ]
    )
    consumers = "no consumer runs"
    if group.consumers:
        consumers = table(
            ("consumer", "process", "since", "last sign of life"),
            (
                (c.id, c.process, moment(c.since), f"{c.silent_s:.0f} s ago")
                for c in group.consumers
            ),
        )
        if summary.standing_by:
            consumers += f"\n{summary.standing_by} stand by: only {summary.open} streams are open"
    streams = table(
        ("stream", "state", "acknowledged", "end", "behind", "owner", "epoch"),
        (
            (s.partition, s.state.value, s.mark, s.end, s.behind, s.owner or "", s.epoch or "")
            for s in group.streams
        ),
    )
    return "\n\n".join([head, consumers, streams, *_standstill(group)])


def _standstill(group: GroupDetail) -> Iterator[str]:
    """The messages that hold up their keys, if any do, with the commands that pass over them."""
    from tailrace.operations.standstill import name_failed, skip_command

    found = [each for stream in group.streams for each in stream.failed]
    if found:
        yield table(
            ("stands still", "given back", "since", "to pass over it"),
            (
                (
                    name_failed(each),
                    format_amount(each.attempts, "time"),
                    moment(each.time),
                    skip_command(group.summary.name, each),
                )
                for each in found
            ),
        )


@verb(
    "seek",
    examples="""
    tailrace group seek billing earliest --dry-run
    tailrace group seek billing @2026-01-01T00:00Z --yes
    tailrace group seek billing orders/1.7@42 --reason "charge them again"
    """,
)
@group_argument
@click.argument("to", metavar="PLACE")
@reason_option
@asks
@click.pass_obj
def seek(session: Session, group: str, to: str, reason: str, yes: bool, dry_run: bool) -> None:
    """Send a group to another place, whether consumers run or not.

    \b
    PLACE is  earliest             before the oldest message
              latest               after the newest
              @2026-01-01T00:00Z   at that time (UTC where no zone is given)
              orders/1.7@42        at that record; what follows its stream begins anew

    Consumers that run go on from there at once.
    """
    from tailrace.operations import group_changes

    with session.open_hub() as hub:
        carry_out(
            session,
            group_changes.plan_seek(hub, group, to),
            lambda: group_changes.seek(hub, group, to, reason),
            yes=yes,
            dry_run=dry_run,
        )


@verb(
    "skip",
    examples="""
    tailrace group skip billing orders/1.7@42 --reason "cannot be charged" --dry-run
    tailrace group skip billing orders/1.7@42 --reason "cannot be charged" --yes
    """,
)
@group_argument
@click.argument("position")
@click.option("--reason", required=True, metavar="TEXT", help="Why; history and audit keep it.")
@asks
@click.pass_obj
def skip(
    session: Session, group: str, position: str, reason: str, yes: bool, dry_run: bool
) -> None:
    """Pass over one message of a group, whether consumers run or not.

    POSITION is that of the message, such as orders/1.7@42; the error of the consumer that could
    not do it names it. It counts as acknowledged, and all else is as it was: consumers that run go
    on with the next message of its key.
    """
    from tailrace.operations import group_changes

    with session.open_hub() as hub:
        carry_out(
            session,
            group_changes.plan_skip(hub, group, position, reason),
            lambda: group_changes.skip(hub, group, position, reason),
            yes=yes,
            dry_run=dry_run,
        )


@verb(
    "history",
    examples="""
    tailrace group history billing
    tailrace group history billing -n 1000 -o json
    """,
)
@group_argument
@click.option("-n", "--count", type=click.IntRange(min=1), default=100, show_default=True)
@click.pass_obj
def history(session: Session, group: str, count: int) -> None:
    """Say what happened: joins, grants, revocations, terms, failures, seeks, skips, and why."""
    from tailrace.group.definition import read_group
    from tailrace.group.history import read_history

    with session.open_hub() as hub:
        read_group(hub.backend, group)
        session.show(read_history(hub.backend, group, count), _history_table)


def _history_table(lines: list[HistoryLine]) -> str:
    if not lines:
        return "nothing happened yet"
    return table(
        ("time", "what", "stream", "epoch", "consumer", "why"),
        (
            (instant(each.time), each.what, each.unit, each.epoch or "", each.consumer, _why(each))
            for each in lines
        ),
    )


def _why(line: HistoryLine) -> str:
    return f"{line.process} leads" if line.what == "term" else line.why


@verb(
    "delete",
    examples="""
    tailrace group delete billing --dry-run
    tailrace group delete billing --yes
    """,
)
@group_argument
@reason_option
@asks
@click.pass_obj
def delete(session: Session, group: str, reason: str, yes: bool, dry_run: bool) -> None:
    """Forget a group, and how far it is. What it held back may then be removed."""
    from tailrace.operations import group_changes

    with session.open_hub() as hub:
        carry_out(
            session,
            group_changes.plan_delete(hub, group),
            lambda: group_changes.delete(hub, group, reason),
            yes=yes,
            dry_run=dry_run,
        )


group_command = Noun(
    "group",
    [list_, show, seek, skip, history, delete],
    help="See who shares which topics, and send groups elsewhere.",
)
