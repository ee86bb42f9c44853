"""The counts of a queue for people, and the verdict on whether they add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.queue.stats import MessageCounts, QueueStats


@dataclass(frozen=True, slots=True)
class QueueAccounts:
    """The counts of a queue, and whether every message is accounted for.

    `conserved` is None if messages moved while they were counted. `missing` is the number of
    messages that no count has, negative if there are too many. `text` says it in words.
    """

    total: MessageCounts
    conserved: bool | None
    missing: int
    text: str

    @classmethod
    def of(cls, stats: QueueStats) -> QueueAccounts:
        """Return the accounts of a queue by its counts."""
        total = stats.total
        missing = total.inserted - total.accounted
        return cls(total, stats.conserved, missing, _text(total, stats.conserved, missing))


def read_accounts(hub: Hub, name: str) -> QueueAccounts:
    """Count the messages of a queue. Raise `UnknownQueue` if there is none."""
    return QueueAccounts.of(hub.queue(name, strict=True).stats())


def difference_text(accounts: QueueAccounts) -> str:
    """Return what does not add up: ``3 messages of 2,000 are missing``."""
    count = format_amount(abs(accounts.missing), "message")
    verb = "is" if abs(accounts.missing) == 1 else "are"
    if accounts.missing > 0:
        return f"{count} of {accounts.total.inserted:,} {verb} missing in the counts"
    return f"{count} {verb} counted beyond the {accounts.total.inserted:,} that were pushed"


def _text(total: MessageCounts, conserved: bool | None, missing: int) -> str:
    if conserved is None:
        return "not known while messages move; count again, or pause the queue with --drain"
    parts = " + ".join(_parts(total)) or "0"
    if conserved:
        return f"conserved: {total.inserted:,} inserted = {parts}"
    sign = "missing" if missing > 0 else "too many"
    return f"NOT CONSERVED: {total.inserted:,} inserted, but {parts}; {abs(missing):,} {sign}"


def _parts(total: MessageCounts) -> Iterator[str]:
    """Yield the ends and places that have messages."""
    for name in (
        "acked", "filtered", "discarded", "dead", "expired", "retrying", "in_flight", "ready",
    ):  # fmt: skip
        if count := getattr(total, name):
            yield f"{count:,} {name.replace('_', ' ')}"
