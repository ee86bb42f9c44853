"""`tailrace status`: is all well, and if not, what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.session import ExitStatus, Session
from tailrace.cli.tables import size
from tailrace.cli.watching import show_once_or_watch, watches
from tailrace.errors import BackendUnavailable

if TYPE_CHECKING:
    from tailrace.operations.status import HubStatus, Problem


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
def status_command(session: Session, watch: bool) -> None:
    """Say whether the hub is well, and what helps.

    Where it is not, the exit status is 4. These are quick checks; what reads every record is
    tailrace segment verify.
    """
    found: list[HubStatus] = []

    def show() -> None:
        found[:] = [_look(session)]
        session.show(found[0], _status_text)

    show_once_or_watch(show, watch=watch)
    if not found[0].well:
        raise click.exceptions.Exit(ExitStatus.NOT_WELL)


def _look(session: Session) -> HubStatus:
    from tailrace.operations import status

    try:
        with session.open_hub() as hub:
            return status.status(hub)
    except BackendUnavailable as error:
        return status.unavailable(session.settings.hub.path, error)


def _status_text(found: HubStatus) -> str:
    lines = []
    if not found.well:
        lines += [click.style("NOT WELL", fg="red", bold=True), *_listed(found.problems)]
    if found.hub is not None:
        hub = found.hub
        pipelines = f"{format_amount(found.pipelines, 'pipeline')}, " if found.pipelines else ""
        groups = f"{format_amount(found.groups, 'group')}, " if found.groups else ""
        rest = click.style("well", fg="green") if found.well else "otherwise well"
        lines.append(
            f"{rest}: {format_amount(hub.topics, 'topic')}, {pipelines}{groups}"
            f"{format_amount(hub.messages, 'message')}, {size(hub.bytes)}; "
            f"disk {hub.disk_percent} % full"
        )
    return "\n".join([*lines, *_listed(found.notes)])


def _listed(problems: tuple[Problem, ...]) -> list[str]:
    subject, what = (
        max((len(getattr(each, name)) for each in problems), default=0)
        for name in ("subject", "what")
    )
    return [f"  {p.subject:<{subject}}  {p.what:<{what}}  {p.remedy}" for p in problems]
