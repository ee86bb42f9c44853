"""`tailrace subscription reshard`: change the number of shards while messages flow."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.amount import format_amount
from tailrace.cli.arguments import optional_reason, subscription_argument
from tailrace.cli.command import verb
from tailrace.cli.terminal.confirm import PlannedChange, planned
from tailrace.duration import parse_duration
from tailrace.terminal.progress import ProgressDisplay

if TYPE_CHECKING:
    from tailrace.hub.hub import Hub
    from tailrace.operations.subscription.reshard import ReshardReport


@verb(
    "reshard",
    examples="""
    tailrace subscription reshard mailer 12 --dry-run
    tailrace subscription reshard mailer 12 --yes
    tailrace subscription reshard mailer 12 --yes --wait 0s
    """,
)
@subscription_argument
@click.argument("shards", type=int)
@click.option(
    "--uneven", is_flag=True, help="Allow a number of shards that does not divide the partitions."
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="Longest wait until the change is done; it goes on after that.  [default: no end]",
)
@optional_reason
@planned
def reshard(
    hub: Hub, subscription: str, shards: int, uneven: bool, wait: str | None, reason: str
) -> PlannedChange:
    """Change the number of shards of a subscription, or of a queue.

    Messages keep flowing, and every key stays in order. Workers finish the calls in flight and
    continue with the new shards. The change needs no worker to run. If it has to wait until older
    storage topics of the topic are finished, the present shards work on, and Ctrl-C ends the wait
    and not the change. The present number of shards takes back a change that has not begun.
    """
    from tailrace.operations.subscription.reshard import plan_reshard

    limit = None if wait is None else parse_duration(wait, "--wait")
    plan = plan_reshard(hub, subscription, shards, uneven=uneven)
    apply = partial(_reshard, hub, subscription, shards, uneven=uneven, wait=limit, reason=reason)
    return PlannedChange(plan, apply, _report_text)


def _reshard(
    hub: Hub,
    subscription: str,
    shards: int,
    *,
    uneven: bool,
    wait: timedelta | None,
    reason: str,
) -> ReshardReport:
    from tailrace.operations.subscription.reshard import reshard

    with ProgressDisplay() as display:

        def watch(text: str) -> None:
            display.show(lambda: text, lambda: text)

        return reshard(
            hub, subscription, shards, uneven=uneven, wait=wait, reason=reason, watch=watch
        )


def _report_text(report: ReshardReport) -> str:
    name = report.subscription
    if report.before == report.shards:
        return f"{name}: taken back, {format_amount(report.shards, 'shard')} as before"
    if report.done:
        shards = format_amount(report.shards, "shard")
        return f"{name}: {report.before} -> {shards}, generation {report.generation}"
    waits = ", ".join(map(str, report.waits_for)) or "the workers"
    return (
        f"{name}: {report.before} -> {report.shards} shards is under way and waits for {waits};"
        f" follow it: tailrace explain {name} --subscription"
    )
