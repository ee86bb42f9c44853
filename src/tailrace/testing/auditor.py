"""An independent auditor: what producers were told against what was read, and nothing else.

It knows no hub, no partitions and no lineage, so it cannot share a mistake with them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple


class Numbered(NamedTuple):
    """A message as the auditor knows it: the `number`-th one that was pushed for its key."""

    key: Hashable
    number: int


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of it. All is well when the last four are empty.

    `told` and `seen` count messages, each once. `lost` have a receipt and were never read.
    `displaced` were read elsewhere than their receipt says. `doubled` were read more than once, or
    have receipts for two positions. `disordered` are the keys of which a message was first read
    after one with a higher number.
    """

    told: int
    seen: int
    lost: frozenset[Numbered]
    displaced: frozenset[Numbered]
    doubled: frozenset[Numbered]
    disordered: frozenset[Hashable]

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.displaced or self.doubled or self.disordered)


class Auditor:
    """Collects receipts in any order, and messages in the order they were read.

    Whoever pushes numbers the messages of each key, rising, and puts the number into the message
    for the reader to find. Messages that were read and have no receipt are allowed: a producer that
    was killed had no time to hear of its last ones.
    """

    def __init__(self) -> None:
        self._told: dict[Numbered, str] = {}
        self._seen: dict[Numbered, str] = {}
        self._newest: dict[Hashable, int] = {}
        self._doubled: set[Numbered] = set()
        self._disordered: set[Hashable] = set()

    def told(self, key: Hashable, number: int, position: str) -> None:
        """A producer holds a receipt: this message is stored at this position."""
        message = Numbered(key, number)
        if self._told.setdefault(message, position) != position:
            self._doubled.add(message)

    def saw(self, key: Hashable, number: int, position: str) -> None:
        """A reader got this message next, from this position."""
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
        """The verdict on all that was told and seen so far."""
        seen = self._seen
        return Audit(
            told=len(self._told),
            seen=len(seen),
            lost=frozenset(message for message in self._told if message not in seen),
            displaced=frozenset(
                message
                for message, position in self._told.items()
                if seen.get(message, position) != position
            ),
            doubled=frozenset(self._doubled),
            disordered=frozenset(self._disordered),
        )
