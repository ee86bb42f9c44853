"""The check of a queue for `tailrace status`: whether every message is accounted for."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.hub.hub import Hub
from tailrace.operations.problem import Problem
from tailrace.operations.queue.accounting import difference_text, read_accounts


def check_accounts(hub: Hub, name: str) -> Iterator[Problem]:
    """Yield a problem if a queue is quiet and its counts do not add up."""
    accounts = read_accounts(hub, name)
    if accounts.conserved is False:
        what = f"NOT CONSERVED: {difference_text(accounts)}"
        yield Problem(f"queue {name}", what, f"tailrace queue stats {name} --shards")
