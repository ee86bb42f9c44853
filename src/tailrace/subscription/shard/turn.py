"""A message whose turn has come, on its way to a call."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.delivery.key_lanes import LaneName
from tailrace.subscription.shard.attempts import Attempts, Begun, Origin
from tailrace.subscription.shard.commit.outputs import Pushed
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.shard.slices import BatchSlice

NO_ATTEMPTS = Attempts()


@dataclass(slots=True, eq=False)
class SharedCall:
    """A call that is under way, with the number of its turns that have not ended."""

    turns: int = 1


@dataclass(slots=True, eq=False)
class Turn:
    """The first message of a lane of a queue, or a dead letter that was asked for; or a slice.

    `record`, `origin` and `attempts` are known once the record was read. Those of a slice are those
    of its first message.
    """

    queue: Queue
    lane: LaneName
    id: int
    record: RecordRow | None = None
    origin: Origin | None = None
    attempts: Attempts = NO_ATTEMPTS
    alone: bool = False
    """True if nothing else may be in flight in the process while it is called."""
    request: str = ""
    """The request for which a dead letter is delivered."""
    failures: int = 0
    """The number of calls that failed for that request."""
    single: bool = False
    """True if it is called without others: a call with several messages has failed."""
    early: bool = False
    """True if it is acknowledged before its call."""
    outputs: list[Pushed] = field(default_factory=list)
    """What its call has pushed, to be stored with its acknowledgement."""
    slice: BatchSlice | None = None
    call: SharedCall | None = None
    """The call that it is in. Further turns can be in it, if the handler takes several."""

    @property
    def messages(self) -> int:
        """The number of messages."""
        return 1 if self.slice is None else len(self.slice.rows)

    @property
    def origins(self) -> list[Origin]:
        """The origins of the messages."""
        if self.slice is None:
            return [self.known_origin]
        partition, _, reset = self.known_origin
        return [Origin(partition, offset, reset) for offset in self.slice.offsets]

    @property
    def known_record(self) -> RecordRow:
        """The record, which was read."""
        assert self.record is not None, "a record is read before its message is called or moved"
        return self.record

    @property
    def known_origin(self) -> Origin:
        """The origin, which the record has."""
        assert self.origin is not None, "a record is read before its message is called"
        return self.origin

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.attempts.count + 1

    @property
    def called_before(self) -> bool:
        """True if its handler may have been called with it before."""
        return self.alone or self.single or self.attempts.count > 0

    @property
    def delays(self) -> int:
        """The number of the delay that follows if it fails, from 1. Those of a request are counted
        anew."""
        return self.failures + 1 if self.request else self.attempt

    def mark(self, worker: str) -> Attempts:
        """Return what is stored before its call."""
        return self.attempts.begin(
            Begun.ALONE if self.alone else Begun.SHARED, worker, self.request
        )

    @property
    def unmarked(self) -> Attempts:
        """What is stored instead if it is not called."""
        return self.attempts.begin(Begun.SHARED) if self.alone else self.attempts
