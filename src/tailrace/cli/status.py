"""`tailrace status`: the health of a hub and suggested fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.terminal.watch import show_once_or_watch, watches
from tailrace.errors import BackendUnavailable
from tailrace.terminal.tables import size

if TYPE_CHECKING:
    from tailrace.operations.problem import Problem
    from tailrace.operations.status import HubStatus


@verb(
    "status",
    examples="""
    tailrace status
    tailrace status --watch
    tailrace status -o json
    """,
)
@watches
@click.pass_obj
def status_command(context: CommandContext, watch: bool) -> None:
    """Show the hub's health and suggested fixes.

    The exit status is 4 if there are problems: failures, damaged files, dead letters, a group,
    subscription or queue that lags without a consumer or worker, a paused one, a queue whose counts
    do not add up, a pipeline that did not start, or that lags and does not run, a source that no
    task reads although something is left, or whose readers find nothing. The checks are quick; to
    check every message, run tailrace segment verify.
    """
    found: list[HubStatus] = []

    def show() -> None:
        found[:] = [_read_status(context)]
        context.show(found[0], _status_text)

    show_once_or_watch(show, watch=watch)
    if not found[0].well:
        raise click.exceptions.Exit(ExitStatus.NOT_WELL)


def _read_status(context: CommandContext) -> HubStatus:
    from tailrace.operations import status

    try:
        with context.open_hub() as hub:
            return status.status(hub)
    except BackendUnavailable as error:
        return status.unavailable(context.settings.hub.path, error)


def _status_text(found: HubStatus) -> str:
    lines = []
    if not found.well:
        lines += [click.style("NOT WELL", fg="red", bold=True), *_listed(found.problems)]
    if found.hub is not None:
        hub = found.hub
        counts = {
            "queue": found.queues,
            "subscription": found.subscriptions,
            "source": found.sources,
            "pipeline": found.pipelines,
            "group": found.groups,
        }
        consumers = "".join(f"{format_amount(n, what)}, " for what, n in counts.items() if n)
        rest = click.style("well", fg="green") if found.well else "otherwise well"
        lines.append(
            f"{rest}: {format_amount(hub.topics, 'topic')}, {consumers}"
            f"{format_amount(hub.messages, 'message')}, {size(hub.bytes)}"
            + ("" if hub.disk_percent is None else f"; disk {hub.disk_percent} % full")
        )
    return "\n".join([*lines, *_listed(found.notes)])


def _listed(problems: tuple[Problem, ...]) -> list[str]:
    subject, what = (
        max((len(getattr(each, name)) for each in problems), default=0)
        for name in ("subject", "what")
    )
    return [f"  {p.subject:<{subject}}  {p.what:<{what}}  {p.remedy}" for p in problems]
