"""An independent auditor: it compares receipts of producers with messages of readers.

It uses no hub, partitions or lineage, so it cannot share a mistake with them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


class Numbered(NamedTuple):
    """A message as the auditor knows it: the `number`-th one of its key, from 1."""

    key: Hashable
    number: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit. It is well if the last four are empty.

    `pushed` and `seen` are the numbers of messages with a receipt, and of messages that were read.
    `lost` messages have a receipt and were never read. `displaced` messages were read at another
    position than that of their receipt. `doubled` messages were read more than once, or have
    receipts for two positions. `disordered` keys have a message that was first read after one with
    a higher number.
    """

    pushed: int
    seen: int
    lost: frozenset[Numbered]
    displaced: frozenset[Numbered]
    doubled: frozenset[Numbered]
    disordered: frozenset[Hashable]

    @property
    def well(self) -> bool:
        """True if no message was lost, displaced, doubled or read out of order."""
        return not (self.lost or self.displaced or self.doubled or self.disordered)


class Auditor:
    """Collects receipts in any order, and messages in the order they were read.

    The producer numbers the messages of each key, rising, and puts the number into the message.
    Messages without a receipt are allowed: a producer that was killed did not receive its last
    ones.
    """

    def __init__(self) -> None:
        self._pushed: dict[Numbered, str] = {}
        self._seen: dict[Numbered, str] = {}
        self._newest: dict[Hashable, int] = {}
        self._doubled: set[Numbered] = set()
        self._disordered: set[Hashable] = set()

    def pushed(self, key: Hashable, number: int, position: str) -> None:
        """Record a receipt: this message is stored at this position."""
        message = Numbered(key, number)
        if self._pushed.setdefault(message, position) != position:
            self._doubled.add(message)

    def saw(self, key: Hashable, number: int, position: str) -> None:
        """Record that a reader read this message next, at this position."""
        message = Numbered(key, number)
        if message in self._seen:
            self._doubled.add(message)
            return
        self._seen[message] = position
        if number < self._newest.get(key, number):
            self._disordered.add(key)
        else:
            self._newest[key] = number

    def audit(self) -> Audit:
        """Return the result for all receipts and messages so far."""
        seen = self._seen
        return Audit(
            pushed=len(self._pushed),
            seen=len(seen),
            lost=frozenset(message for message in self._pushed if message not in seen),
            displaced=frozenset(
                message
                for message, position in self._pushed.items()
                if seen.get(message, position) != position
            ),
            doubled=frozenset(self._doubled),
            disordered=frozenset(self._disordered),
        )
