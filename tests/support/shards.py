"""A subscription in memory, and owners of its shard that a test drives step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tailrace.backend.contract import FENCES, Backend, raise_fence
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.delivery.retry import Retry
from tailrace.errors import BackendUnavailable, OutcomeUnknown, Sealed
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.subscription.shard.machine import ShardMachine
from tailrace.subscription.shard.options import MOVE_BYTES_MAX, ShardOptions
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.step import StepKind
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.definition import (
    NewSubscription,
    StoredSubscription,
    creation_of,
    find_subscription,
    opening_of,
)
from tailrace.subscription.store.names import dead_letter_queue, retry_queue, shard_fence
from tailrace.subscription.store.reading import read_batch
from tailrace.subscription.store.takeover import read_bounds, read_ledgers, read_takeover
from tailrace.subscription.store.transaction import ShardTargets, commit_shard
from tests.support.faulty_backend import FaultyBackend
from tests.support.topics import all_messages

NAME = "crm"
RETRY_S = 5.0
FAILED = CallOutcome(OutcomeKind.RETRY, "ValueError: no stock")
REJECTED = CallOutcome(OutcomeKind.REJECT, "Reject: negative")
MIDDLE = 0.0
"""The random number of tests: delays are not shortened."""


def subscribe(
    hub: Hub, topic: str = "orders", *, attempts: int | None = 3, **options: Any
) -> StoredSubscription:
    """Create a subscription, and return it as stored."""
    retry = Retry(attempts, first=f"{RETRY_S}s", max=f"{RETRY_S}s")
    main = hub.topic(topic).view.refresh()
    change = creation_of(
        NAME, NewSubscription(topic, retry, **options), main, now_ms=0, identity="i"
    )
    hub.backend.store.commit(change)
    return stored(hub.backend)


def stored(backend: Backend) -> StoredSubscription:
    found = find_subscription(backend, NAME)
    assert found is not None
    return found


@dataclass
class Shop:
    """A topic with a subscription of one shard, unless told otherwise."""

    partitions: int = 1
    attempts: int | None = 3
    policy: OnDeadLetter = OnDeadLetter.BLOCK
    concurrency: int = 4
    shards: int = 1
    gap_every: int = 0
    move_bytes_max: int = MOVE_BYTES_MAX
    backend: FaultyBackend = field(init=False)
    topic: Topic[Any] = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.backend = FaultyBackend(gap_every=self.gap_every)
        hub = Hub.from_backend(self.backend)
        self.topic = hub.create_topic("orders", partitions=self.partitions)
        subscribe(hub, attempts=self.attempts, policy=self.policy, shards=self.shards)

    def push(self, key: str | None, *values: Any) -> None:
        for value in values:
            self.topic.push(value, key=key)

    def owner(self, shard: int = 0) -> Owner:
        """Start a new owner of a shard. Earlier ones can write no more."""
        return Owner(self, shard)

    def queued(self, queue: Queue) -> list[Any]:
        """Return the values of all records that were ever appended to RQ or DLQ."""
        name = retry_queue(NAME) if queue is Queue.RQ else dead_letter_queue(NAME)
        topic = Hub.from_backend(self.backend).topic(name)
        return [message.value for message in all_messages(topic)]


class Owner:
    """An owner of a shard, from its takeover on. Time is the shop's."""

    def __init__(self, shop: Shop, shard: int) -> None:
        self.shop = shop
        self.shard = shard
        self.backend: Backend = shop.backend
        self.epoch = raise_fence(shop.backend.store, shard_fence(NAME, f"0.{shard}", 0).name).epoch
        definition = stored(shop.backend).definition
        self.machine = ShardMachine(
            ShardOptions(
                definition.retry,
                definition.policy,
                shop.concurrency,
                move_bytes_max=shop.move_bytes_max,
            ),
            "w1",
        )
        self.calls: list[tuple[Any, int]] = []
        """The values and attempt numbers of all calls, in order."""
        self.in_flight: dict[Any, Turn] = {}
        self.lost = False
        self._read_definition()

    # Steps.

    def step(self) -> StepKind:
        """Do the next step, unless it is to call or to wait."""
        machine, now = self.machine, self.shop.now
        kind, partition, offset = machine.step(now)
        if kind is StepKind.LOAD:
            takeover = read_takeover(self.backend, self.stored, self.shard)
            machine.load(takeover, now, self.now_ms)
        elif kind is StepKind.READ:
            assert partition is not None
            batch = self._read(partition, offset)
            machine.fetched(partition, batch)
            if batch is None:
                _, end, sealed = self.backend.log.bounds(partition)
                machine.intake.inspected(partition, end, sealed)
        elif kind is StepKind.READ_AGAIN:
            assert partition is not None
            batch = self._read(partition, offset)
            assert batch is not None
            machine.fetched_again(batch)
        return kind

    def commit(self) -> bool:
        """Store what is ready. False if that failed."""
        machine = self.machine
        commit = machine.start_commit()
        if commit is None:
            return True
        fence = shard_fence(NAME, f"0.{self.shard}", self.epoch)
        try:
            places = commit_shard(self.backend, self.targets, commit, fence, self.now_ms)
        except Sealed:
            machine.not_committed(commit)
            self.reopen()
            return False
        except OutcomeUnknown:
            self.lost = True
            return False
        except BackendUnavailable:
            machine.not_committed(commit)
            return False
        machine.committed(commit, places)
        return True

    def advance(self) -> StepKind:
        """Do steps and due commits until there is something to call, or to wait for."""
        while not self.lost:
            while self.machine.commit_due and self.commit():
                pass
            kind = self.step()
            if kind in (StepKind.CALL, StepKind.WAIT) and not self.machine.commit_due:
                return kind
            if kind in (StepKind.CALL, StepKind.WAIT) and not self.commit():
                return kind
        return StepKind.WAIT

    def start_calls(self, at_most: int | None = None) -> list[Any]:
        """Begin as many calls as the concurrency allows. Returns the values in flight."""
        limit = self.shop.concurrency if at_most is None else at_most
        while len(self.in_flight) < limit and self.advance() is StepKind.CALL:
            if self.machine.wants_alone:
                if self.in_flight:
                    break
                self.machine.begin_alone()
                self.advance()
            turn = self.machine.take()
            if turn is None:
                break
            value = self.value(turn)
            assert value not in self.in_flight
            self.in_flight[value] = turn
            self.calls.append((value, turn.attempt))
        return sorted(self.in_flight, key=str)

    def finish(self, value: Any, outcome: CallOutcome = SUCCESS) -> None:
        """End a call."""
        turn = self.in_flight.pop(value)
        self.machine.finished(turn, outcome, now=self.shop.now, now_ms=self.now_ms, random=MIDDLE)

    def run(self, handler: Callable[[Any], CallOutcome] = lambda value: SUCCESS) -> None:
        """Call until there is nothing to call now, and store everything."""
        while self.start_calls():
            for value in list(self.in_flight):
                self.finish(value, handler(value))
        self.commit()

    def run_until_idle(self, handler: Callable[[Any], CallOutcome]) -> None:
        """Run, and let time pass to each attempt that is due."""
        self.run(handler)
        while not self.lost and (due := self.machine.due) is not None:
            self.shop.now = max(due, self.shop.now)
            self.run(handler)

    def leave(self) -> None:
        """Leave in an orderly way. Nothing may be in flight."""
        self.advance()
        self.machine.drain()
        while not self.machine.drained:
            assert self.commit()

    # The shard.

    @property
    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.shop.now * 1000)

    def value(self, turn: Turn) -> Any:
        batch, row = turn.known_record
        return int(batch.values[row])

    def lag(self, queue: Queue, key: str) -> int:
        """Return the number of messages of a key that lag in a queue."""
        return self.machine.lag.lanes[queue].count(key.encode())

    def reopen(self) -> None:
        """Read the definition again, after the topic was scaled."""
        change = opening_of(stored(self.shop.backend))
        if change is not None:
            self.shop.backend.store.commit(change)
        self._read_definition()
        if self.machine.loaded:
            streams = self.stored.streams(self.shard)
            partitions: Iterable[Partition] = (*streams.mq, *streams.rq, *streams.dlq)
            self.machine.open(
                streams,
                read_ledgers(self.backend, NAME, partitions),
                read_bounds(self.backend, NAME, streams),
            )

    def _read_definition(self) -> None:
        self.stored = stored(self.shop.backend)
        self.targets = ShardTargets.of(self.stored, self.shard)

    def _read(self, partition: Partition, offset: int) -> Any:
        return read_batch(self.backend, f"subscription:{NAME}", partition, offset, 1 << 16)


def fence_of(backend: Backend, shard: int = 0) -> int:
    """Return the present epoch of a shard."""
    entry = backend.store.get(FENCES + shard_fence(NAME, f"0.{shard}", 0).name)
    return 0 if entry is None else entry.version
