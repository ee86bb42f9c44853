"""The error of a run that does not become idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tailrace.amount import format_amount
from tailrace.testing.apps.delivered import HandledDelivery


class NotIdle(AssertionError):
    """A run made more calls than it may: a message is retried without end, or handlers push
    messages to their own topics.

    `deliveries` are those calls, with the names of their subscriptions.
    """

    def __init__(self, deliveries: Sequence[tuple[str, HandledDelivery]]) -> None:
        super().__init__(deliveries)
        self.deliveries = deliveries

    def __str__(self) -> str:
        calls = Counter((name, each.id) for name, each in self.deliveries)
        (name, id), count = calls.most_common(1)[0]
        last = next(each for _, each in reversed(self.deliveries) if each.id == id)
        return (
            f"not idle after {format_amount(len(self.deliveries), 'call')}"
            f" · {name}: {id} (key {last.key!r}) was called {format_amount(count, 'time')}, last"
            f" {last.outcome.value}{last.error and ': '}{last.error}"
            " · end its faults, give its subscription a last attempt, or allow more by calls_max"
        )
