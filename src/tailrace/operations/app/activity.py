"""What the workers of an app are doing, in one process or in all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:  # A supervisor runs no worker and loads none of what workers need.
    from tailrace.app.running_app import RunningApp


class SubscriptionActivity(msgspec.Struct, frozen=True):
    """The shards and the calls of a subscription. The counts are since the processes started."""

    shards: int = 0
    in_flight: int = 0
    succeeded: int = 0
    failed: int = 0
    rejected: int = 0

    def __add__(self, other: SubscriptionActivity) -> SubscriptionActivity:
        return SubscriptionActivity(
            *(a + b for a, b in zip(*map(msgspec.structs.astuple, (self, other)), strict=True))
        )


Activity: TypeAlias = Mapping[str, SubscriptionActivity]
"""The activity of each subscription, by its name."""


def activity_of(running: RunningApp) -> Activity:
    """Return the activity of an app in this process."""
    found = {}
    for name, worker in running.workers.items():
        stats = worker.stats()
        found[name] = SubscriptionActivity(
            len(stats.shards), stats.in_flight, stats.succeeded, stats.failed, stats.rejected
        )
    return found


def total_of(activities: Iterable[Activity]) -> Activity:
    """Return the activity of several processes together."""
    total: dict[str, SubscriptionActivity] = {}
    for activity in activities:
        for name, each in activity.items():
            total[name] = total.get(name, SubscriptionActivity()) + each
    return total


def activity_text(activity: Activity) -> str:
    """Return the activity as one line: ``mailer: 4 shards, 12 in flight, 1,204 succeeded``."""
    return " · ".join(f"{name}: {_text(each)}" for name, each in activity.items())


def _text(activity: SubscriptionActivity) -> str:
    always = [
        f"{activity.shards:,} shard{'' if activity.shards == 1 else 's'}",
        f"{activity.in_flight:,} in flight",
        f"{activity.succeeded:,} succeeded",
    ]
    trouble = {"failed": activity.failed, "rejected": activity.rejected}
    return ", ".join([*always, *(f"{count:,} {what}" for what, count in trouble.items() if count)])
