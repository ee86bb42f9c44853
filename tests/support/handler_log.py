"""The handlers' own log of a subscription, in a file that outlives them, and its verdict.

A handler writes a line before it returns, so a worker that is killed has acknowledged no message
whose line is missing. The verdict sees only the receipts of the producers, this log, and the
dead letters.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tailrace import Delivery, Receipt
from tailrace.testing import Audit, Auditor


class HandlerLine(NamedTuple):
    """A call of a handler. `succeeded` is False for one that was about to fail."""

    key: str
    number: int
    position: str
    attempt: int
    succeeded: bool


class HandlerLog:
    """A file to which the handlers of any processes append lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, delivery: Delivery[Any], *, succeeded: bool) -> None:
        """Append the line of a call by one write."""
        line = f"{delivery.key} {delivery.value} {delivery.id} {delivery.attempt} {succeeded:d}\n"
        os.write(self._file, line.encode())

    def lines(self) -> list[HandlerLine]:
        """Return all lines, in order."""
        found = []
        for line in self._path.read_text().splitlines():
            key, number, position, attempt, succeeded = line.split(" ")
            found.append(HandlerLine(key, int(number), position, int(attempt), succeeded == "1"))
        return found

    def succeeded(self) -> set[tuple[str, int]]:
        """Return the messages that were handled with success."""
        return {(line.key, line.number) for line in self.lines() if line.succeeded}


def audit(
    receipts: Mapping[tuple[str, int], Receipt],
    log: HandlerLog,
    dead: Iterable[tuple[str, int]] = (),
) -> Audit:
    """Compare the log with the receipts. Dead letters need not be in it."""
    auditor, excused = Auditor(), set(dead)
    for (key, number), receipt in receipts.items():
        if (key, number) not in excused:
            auditor.pushed(key, number, receipt.id)
    seen: set[tuple[str, int]] = set()
    for line in log.lines():
        message = line.key, line.number
        if line.succeeded and message not in seen:  # a later success is a redelivery
            seen.add(message)
            auditor.saw(line.key, line.number, line.position)
    return auditor.audit()


def calls_by_key(log: HandlerLog) -> dict[str, list[int]]:
    """Return the numbers of the messages of each key, in the order of their calls."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for line in log.lines():
        found[line.key].append(line.number)
    return dict(found)
