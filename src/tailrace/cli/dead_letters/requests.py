"""`tailrace dlq` for subscriptions: ask the workers, wait for them, and show what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tailrace.amount import format_amount
from tailrace.cli.context import CommandContext, ExitStatus

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.dead_letters.requests import LetterRequestReport

WAIT: Final = "30s"
"""How long to wait for the workers unless told otherwise."""

_DONE: Final = {"dlq redeliver": "redelivered", "dlq discard": "discarded"}


def request_letters(
    context: CommandContext, hub: Hub, name: str, verb_name: str, options: dict[str, Any]
) -> None:
    """Ask the workers of a subscription to redeliver or discard letters, and show the outcome.

    Exit with status 1 if letters failed or were refused, and with 3 if the outcome is not known
    after the time to wait.
    """
    from tailrace.duration import parse_duration
    from tailrace.operations.dead_letters import requests
    from tailrace.subscription.shard.requests.request import RequestAction

    wait = options["wait"] or WAIT
    longest = parse_duration(wait, "--wait")
    command = requests.LetterCommand(
        RequestAction(verb_name),
        keys=options["keys"],
        positions=options["positions"],
        error=options["error"] or "",
        after=options["after"],
        before=options["before"],
        everything=options.get("everything", False),
        break_order=options.get("break_order", False),
        attempts=options.get("attempts") or 1,
        reason=options["reason"],
    )
    made = requests.make_request(hub, name, command)
    report = requests.look_at(hub, name, command, made)
    if options["no_wait"]:
        context.show(report, _report_text)
        return
    if report.state is requests.LetterRequestState.PENDING:
        asked = _asked(made.letters, made.keys)
        waiting = f"{name}: asked to {verb_name} {asked}; waiting up to {wait}"
        click.echo(waiting, err=True)
        report = requests.await_request(hub, name, command, made, longest)
    context.show(report, _report_text)
    if report.failed or report.refused:
        raise click.exceptions.Exit(ExitStatus.ERROR)
    if report.state not in (requests.LetterRequestState.EMPTY, requests.LetterRequestState.ENDED):
        raise click.exceptions.Exit(ExitStatus.STOPPED)


def _asked(letters: int, keys: int) -> str:
    of_keys = f" of {format_amount(keys, 'key')}" if keys else ""
    return f"{format_amount(letters, 'dead letter')}{of_keys}"


def _report_text(report: LetterRequestReport) -> str:
    return "\n".join([f"{report.consumer}: {_state_text(report)}", *_more(report)])


def _state_text(report: LetterRequestReport) -> str:
    from tailrace.operations.dead_letters.requests import LetterRequestState

    done = _DONE[report.command]
    asked = f"{_asked(report.letters, report.keys)} to be {done}"
    later = f"the request {report.request} stays, and workers carry it out"
    if report.state is LetterRequestState.EMPTY:
        return f"no dead letter was selected: nothing is {done}"
    if report.state is LetterRequestState.UNATTENDED:
        return f"{asked}; no worker runs: {later} when they start"
    if report.state is LetterRequestState.PAUSED:
        resume = f"tailrace subscription resume {report.consumer}"
        return f"{asked}; the subscription is paused: {later} after: {resume}"
    if report.state is LetterRequestState.PENDING:
        return f"{asked}; not ended yet: {later}"
    return f"{format_amount(report.resolved, 'dead letter')} {done}"


def _more(report: LetterRequestReport) -> Iterator[str]:
    """Yield lines about letters that were not resolved."""
    name = report.consumer
    if report.failed:
        keys = format_amount(report.failed, "key")
        yield f"  {keys} failed again: tailrace dlq {name} list --by error"
    if report.refused:
        keys = format_amount(report.refused, "key")
        yield f"  {keys} refused: a letter was not the first of its key; add --break-order"
    if report.gone:
        yield f"  {format_amount(report.gone, 'key')} had no such letter any more"
    if report.skipped:
        letters = format_amount(report.skipped, "letter")
        yield f"  {letters} left out, behind another letter of their key that was not selected"
    if report.left:
        yield f"  {format_amount(report.left, 'letter')} left for another command: too many for one"
