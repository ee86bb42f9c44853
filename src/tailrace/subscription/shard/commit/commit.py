"""One commit of a shard: everything that is ready, in one transaction under the shard's fence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tailrace.backend.contract import TableKey
from tailrace.delivery.key_lanes import LaneName
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Attempts, Origin
from tailrace.subscription.shard.commit.counts import ShardCounts
from tailrace.subscription.shard.commit.outputs import Pushed
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.requests.state import EndedRequest, RequestState
from tailrace.subscription.shard.turn import Turn

T = TypeVar("T")

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
    replace the stored ones; blank ones are removed. `permits` are offsets of MQ by
    partition that are added to the stored ones. `marked` are the messages that may be called once
    the commit is stored.
    """

    acks: dict[Partition, list[tuple[int, int]]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    attempts: dict[Origin, Attempts] = field(default_factory=dict)
    permits: dict[Partition, list[int]] = field(default_factory=dict)
    marked: list[Turn] = field(default_factory=list)
    ends_alone: bool = False
    """True if it stores the outcome of a message that was called alone."""
    counted: bool = False
    """True if counts have changed that belong to nothing else in it."""
    quiet: bool = False
    """True if it says that nothing is in flight during a pause."""
    final: bool = False
    """True for the last commit of an owner that leaves in an orderly way."""
    append_bytes: int = 0
    """The approximate size of what is appended."""
    outputs: list[Pushed] = field(default_factory=list)
    """What the handlers of acknowledged messages have pushed, in order."""
    requests: dict[str, RequestState | None] = field(default_factory=dict)
    """How far requests on dead letters are, by id; None removes what is stored."""
    ended: list[EndedRequest] = field(default_factory=list)
    """The requests that end with it, each with an audit line."""
    discarded: int = 0
    """The number of dead letters among `acks` that are discarded."""
    traces: dict[Origin, str | None] = field(default_factory=dict)
    """The tracebacks of messages that become dead letters, or stay so; None removes that of a
    letter that is acknowledged."""
    ledger: dict[TableKey, bytes | None] = field(default_factory=dict)
    """The entries of the ledgers, made from `acks` when the commit starts."""
    permitted: dict[Partition, set[int]] = field(default_factory=dict)
    """All permits of partitions, made from `permits` when the commit starts."""
    worker: str = ""
    """The process that may call them, set when the commit starts."""
    counts: ShardCounts | None = None
    """The counts of the shard with those of this commit, set when the commit starts."""

    def __bool__(self) -> bool:
        writes = self.acks or self.moves or self.outputs or self.attempts or self.permits
        decided = self.requests or self.marked or self.counted
        return bool(writes or decided or self.final or self.quiet)

    @property
    def early(self) -> bool:
        """True if it acknowledges messages that are called once it is stored."""
        return any(turn.early for turn in self.marked)

    def ack(self, partition: Partition, first: int, after: int) -> None:
        """Add an acknowledgement of the offsets from `first` up to, not including, `after`."""
        ranges = self.acks.setdefault(partition, [])
        if ranges and ranges[-1][1] == first:  # a long run of messages is one range
            first = ranges.pop()[0]
        ranges.append((first, after))

    def move(
        self, turn: Turn, place: tuple[Partition, int], target: Queue, attempts: Attempts | None
    ) -> None:
        """Add a message that is moved from its place to an older queue."""
        partition, offset = place
        self.ack(partition, offset, offset + 1)
        error = FOLLOWS if attempts is None else attempts.error
        record, origin = turn.known_record, turn.known_origin
        move = Move(turn.queue, target, turn.lane, record, origin, attempts, error)
        self.moves.append(move)
        self.append_bytes += move.size_bytes

    def push(self, outputs: Iterable[Pushed]) -> None:
        """Add what the handler of an acknowledged message has pushed."""
        for output in outputs:
            self.outputs.append(output)
            self.append_bytes += output.size_bytes

    def followed_by(self, later: ShardCommit) -> ShardCommit:
        """Return one commit with everything of this one, which was not stored, and of a later
        one. What this one appends comes first."""
        return ShardCommit(
            _joined(self.acks, later.acks),
            [*self.moves, *later.moves],
            self.attempts | later.attempts,
            _joined(self.permits, later.permits),
            [*self.marked, *later.marked],
            self.ends_alone or later.ends_alone,
            self.counted or later.counted,
            later.quiet,
            later.final,
            self.append_bytes + later.append_bytes,
            [*self.outputs, *later.outputs],
            self.requests | later.requests,
            [*self.ended, *later.ended],
            self.discarded + later.discarded,
            self.traces | later.traces,
        )


def _joined(
    one: Mapping[Partition, list[T]], later: Mapping[Partition, list[T]]
) -> dict[Partition, list[T]]:
    found = {partition: list(each) for partition, each in one.items()}
    for partition, each in later.items():
        found.setdefault(partition, []).extend(each)
    return found
