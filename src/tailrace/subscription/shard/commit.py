"""One commit of a shard: everything that is ready, in one transaction under the shard's fence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tailrace.backend.contract import TableKey
from tailrace.delivery.key_lanes import LaneName
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.turn import Turn

FOLLOWS: Final = "an earlier message of its key failed"
"""The reason of a message that was moved without an attempt."""


@dataclass(frozen=True, slots=True)
class Move:
    """A message that is appended to an older queue and acknowledged where it was.

    `attempts` are those after the attempt that failed; None if it was not attempted.
    """

    source: Queue
    target: Queue
    lane: LaneName
    record: RecordRow
    origin: Origin
    attempts: Attempts | None
    error: str

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record."""
        return self.record.batch.record_bytes

    @property
    def key(self) -> bytes | None:
        """The key of the message; None if it has none."""
        return self.lane if isinstance(self.lane, bytes) else None


@dataclass(slots=True)
class ShardCommit:
    """What a commit stores.

    `acks` are ranges of offsets by partition, those of the moved messages included. `attempts`
    replace the stored ones; blank ones are removed. `handed_out` are upper bounds by partition; 0
    removes one. `marked` are the messages that may be called once the commit is stored.
    """

    acks: dict[Partition, list[tuple[int, int]]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    attempts: dict[Origin, Attempts] = field(default_factory=dict)
    handed_out: dict[Partition, int] = field(default_factory=dict)
    marked: list[Turn] = field(default_factory=list)
    ends_alone: bool = False
    """True if it stores the outcome of a message that was called alone."""
    final: bool = False
    """True for the last commit of an owner that leaves in an orderly way."""
    move_bytes: int = 0
    """The approximate size of what is appended."""
    ledger: dict[TableKey, bytes | None] = field(default_factory=dict)
    """The entries of the ledgers, made from `acks` when the commit starts."""

    def __bool__(self) -> bool:
        return bool(
            self.acks or self.moves or self.attempts or self.handed_out or self.marked or self.final
        )

    def ack(self, partition: Partition, first: int, after: int) -> None:
        """Add an acknowledgement of the offsets from `first` up to, not including, `after`."""
        self.acks.setdefault(partition, []).append((first, after))

    def move(self, move: Move) -> None:
        """Add a message that is moved."""
        self.moves.append(move)
        self.move_bytes += move.size_bytes

    def followed_by(self, later: ShardCommit) -> ShardCommit:
        """Return one commit with everything of this one, which was not stored, and of a later
        one. What this one appends comes first."""
        acks = {partition: list(ranges) for partition, ranges in self.acks.items()}
        for partition, ranges in later.acks.items():
            acks.setdefault(partition, []).extend(ranges)
        return ShardCommit(
            acks,
            [*self.moves, *later.moves],
            self.attempts | later.attempts,
            self.handed_out | later.handed_out,
            [*self.marked, *later.marked],
            self.ends_alone or later.ends_alone,
            later.final,
            self.move_bytes + later.move_bytes,
        )
