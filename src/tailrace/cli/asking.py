"""Before a change that cannot be undone: show the plan, and ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import click

from tailrace.cli.session import ExitStatus, Output, Session, as_json

F = TypeVar("F", bound=Callable[..., Any])


class Plan(Protocol):
    """What a change would do, in words. Without `changes` there is nothing to do."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The words."""


def asks(function: F) -> F:
    """Give a verb the options `--yes` and `--dry-run`."""
    yes = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")
    dry_run = click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
    return yes(dry_run(function))


def carry_out(
    session: Session,
    plan: Plan,
    change: Callable[[], object],
    *,
    yes: bool,
    dry_run: bool,
) -> None:
    """Show a plan and make the change, if there is one to make and nobody objects.

    Where nobody can be asked, `--yes` is needed; without, it is a usage error.
    """
    text = "\n".join(plan.lines)
    if dry_run or not plan.changes:
        session.show(plan, lambda _plan: text)
        return
    in_json = session.output is Output.JSON
    click.echo(text, err=in_json)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "there is no terminal to ask on: add --yes, or --dry-run to look"
            )
        if not click.confirm("apply?", err=in_json):
            click.echo("nothing was changed", err=True)
            raise click.exceptions.Exit(ExitStatus.STOPPED)
    done = change()
    if in_json:
        click.echo(as_json(done))
    else:
        click.echo(click.style("done", fg="green"))
