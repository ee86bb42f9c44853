"""Commands that change a hub: show the plan, ask, apply it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tailrace.cli.context import CommandContext, ExitStatus, Output

if TYPE_CHECKING:
    from tailrace.operations.plan import ChangePlan


def _done(_result: Any) -> str:
    return click.style("done", fg="green")


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A plan and the function that applies it. `describe` makes text of the result."""

    plan: ChangePlan
    apply: Callable[[], Any]
    describe: Callable[[Any], str] = _done


def planned(function: Callable[..., PlannedChange]) -> Callable[..., None]:
    """Make a command of a function that plans a change.

    The function is called with the open hub and its own arguments. The command prints the plan and
    asks before it applies it. It has the options ``--yes``, which does not ask, and ``--dry-run``,
    which applies nothing. Without a terminal to ask on, one of the two is required.
    """

    @click.option("--yes", "-y", is_flag=True, help="Apply the plan without asking.")
    @click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
    @click.pass_obj
    def command(context: CommandContext, /, yes: bool, dry_run: bool, **arguments: Any) -> None:
        with context.open_hub() as hub:
            change = function(hub, **arguments)
            if dry_run or not change.plan.changes:
                context.show(change.plan, str)
            else:
                _apply(context, change, yes=yes)

    return functools.update_wrapper(command, function)


def _apply(context: CommandContext, change: PlannedChange, *, yes: bool) -> None:
    in_json = context.output is Output.JSON
    click.echo(context.text(str(change.plan)), err=in_json)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "there is no terminal to ask on: add --yes to apply the plan, or --dry-run"
            )
        if not click.confirm("apply?", err=in_json):
            click.echo("nothing was changed", err=True)
            raise click.exceptions.Exit(ExitStatus.STOPPED)
    result = change.apply()
    context.show(result, change.describe)
