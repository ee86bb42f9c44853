"""A subscription in memory, and owners of its shard that a test drives step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, Hold, raise_fence
from tailrace.delivery.filter.message_filter import MessageFilter
from tailrace.delivery.outcome import SUCCESS, CallOutcome, OutcomeKind
from tailrace.delivery.retry import Retry
from tailrace.errors import BackendUnavailable, OutcomeUnknown, Sealed, UnknownTopic
from tailrace.group.store.definition import grant_key
from tailrace.group.store.presence import HOLDS, enter
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.queue.stats import QueueStats, read_stats
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.counts import ShardCounts, counts_key, decode_counts
from tailrace.subscription.shard.machine import ShardMachine
from tailrace.subscription.shard.options import (
    APPEND_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Acking,
    ShardOptions,
)
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tailrace.subscription.shard.step import StepKind
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.definition import (
    NewSubscription,
    StoredSubscription,
    creation_of,
    find_subscription,
)
from tailrace.subscription.store.generations.opening import opening_of
from tailrace.subscription.store.key_state import read_attempts
from tailrace.subscription.store.ledgers import OwnedLedgers
from tailrace.subscription.store.names import (
    dead_letter_queue,
    retry_queue,
    shard_fence,
    worker_group,
)
from tailrace.subscription.store.reading import read_batch
from tailrace.subscription.store.requests.entries import read_requests, remove_request
from tailrace.subscription.store.takeover import (
    ended,
    permit_workers,
    read_permits,
    read_takeover,
)
from tailrace.subscription.store.transaction import ShardTargets, commit_shard
from tailrace.subscription.worker.outputs import DeliveryTransaction, OutputTopics
from tailrace.topic.record_builder import Headers
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
    append_bytes_max: int = APPEND_BYTES_MAX
    filter: str | None = None
    """The filter of owners that start from now on."""
    acking: Acking = Acking.AFTER_CALL
    """When owners that start from now on acknowledge."""
    slice_max: int = 0
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    backend: FaultyBackend = field(init=False)
    hub: Hub = field(init=False)
    topic: Topic[Any] = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.backend = FaultyBackend(gap_every=self.gap_every)
        self.hub = hub = Hub.from_backend(self.backend)
        self.topic = hub.create_topic("orders", partitions=self.partitions)
        subscribe(hub, attempts=self.attempts, policy=self.policy, shards=self.shards)

    def push(self, key: str | None, *values: Any, headers: Headers = None) -> None:
        for value in values:
            self.topic.push(value, key=key, headers=headers)

    def owner(self, shard: int = 0) -> Owner:
        """Start a new owner of a shard. Earlier ones can write no more."""
        return Owner(self, shard)

    def queued(self, queue: Queue) -> list[Any]:
        """Return the values of all records that were ever appended to RQ or DLQ."""
        name = retry_queue(NAME) if queue is Queue.RQ else dead_letter_queue(NAME)
        return self.pushed(name)

    def pushed(self, topic: str) -> list[Any]:
        """Return the values of all records of a topic."""
        found = Hub.from_backend(self.backend).topic(topic)
        return [message.value for message in all_messages(found)]

    def counts(self, shard: int = 0) -> ShardCounts:
        """Return the counts of a shard that are stored."""
        return decode_counts(self.backend.table.get(*counts_key(NAME, f"0.{shard}")))

    def stats(self) -> QueueStats:
        """Count the messages, as a queue does."""
        return read_stats(self.backend, stored(self.backend), 1)


class Owner:
    """An owner of a shard, from its takeover on. Time is the shop's."""

    def __init__(self, shop: Shop, shard: int) -> None:
        self.shop = shop
        self.shard = shard
        self.backend: Backend = shop.backend
        found = stored(shop.backend)
        definition, self.unit = found.definition, found.unit(shard)
        self.epoch = raise_fence(shop.backend.store, shard_fence(NAME, self.unit, 0).name).epoch
        self.machine = ShardMachine(
            ShardOptions(
                definition.retry,
                definition.policy,
                shop.concurrency,
                append_bytes_max=shop.append_bytes_max,
                filter=None if shop.filter is None else MessageFilter(shop.filter),
                acking=shop.acking,
                slice_max=shop.slice_max,
                payload_bytes_max=shop.payload_bytes_max,
            ),
            "w1",
        )
        self.calls: list[tuple[Any, int]] = []
        """The values and attempt numbers of all calls, in order."""
        self.in_flight: dict[Any, Turn] = {}
        self.lost = False
        self.topics = OutputTopics(shop.backend, shop.hub.topic)
        """The topics that its handlers push to."""
        self._read_definition()

    # Steps.

    def step(self) -> StepKind:
        """Do the next step, unless it is to call or to wait."""
        machine, now = self.machine, self.shop.now
        kind, partition, offset, reset = machine.step(now)
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
        elif kind is StepKind.READ_ATTEMPTS:
            assert partition is not None
            origin = Origin(partition, offset, reset)
            machine.attempts_read(origin, read_attempts(self.backend, NAME, origin))
        elif kind is StepKind.REMOVE_REQUEST:
            request = machine.requests.to_remove[0]
            remove_request(self.backend, NAME, request, self.stored.unit(self.shard))
            machine.requests.removed(request)
        return kind

    def commit(self) -> bool:
        """Store what is ready. False if that failed."""
        machine = self.machine
        commit = machine.start_commit()
        if commit is None:
            return True
        fence = shard_fence(NAME, self.unit, self.epoch)
        try:
            places = commit_shard(
                self.backend, self.targets, commit, fence, self.now_ms, self.topics.view
            )
        except Sealed:
            machine.not_committed(commit)
            self.reopen()
            return False
        except (OutcomeUnknown, UnknownTopic):
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
        while len(self.in_flight) < limit:
            if self.advance() is not StepKind.CALL and not self.machine.can_call:
                break
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

    def transaction(self, value: Any) -> DeliveryTransaction:
        """Return the transaction of a call that is under way."""
        return DeliveryTransaction(self.in_flight[value], self.topics)

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

    def read_requests(self) -> None:
        """Learn of the requests that were made since the takeover."""
        self.advance()
        for request in read_requests(self.backend, NAME, self.shard):
            self.machine.request(request)

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

    def finished_reading(self) -> bool:
        """True if everything in the topic is acknowledged by the stored ledgers."""
        ledgers, log = self.machine.ledgers.stored, self.shop.backend.log
        return all(
            ledgers[each].mark == log.bounds(each).end
            for each in self.stored.streams(self.shard).mq
        )

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
            streams, ledgers = OwnedLedgers.read(self.backend, self.stored, self.shard)
            permits = read_permits(self.backend, NAME, streams)
            self.machine.open(
                streams,
                ledgers,
                permits,
                ended(self.backend, permit_workers(permits)),
            )

    def _read_definition(self) -> None:
        self.stored = stored(self.shop.backend)
        self.targets = ShardTargets.of(self.stored, self.shard)

    def _read(self, partition: Partition, offset: int) -> Any:
        return read_batch(self.backend, f"subscription:{NAME}", partition, offset, 1 << 16)


def grant(backend: Backend, worker: str, *shards: int) -> Hold:
    """Store grants of shards to a worker of a process that lives until the hold is released.

    No fence is raised: an owner that a test drives goes on. A later owner's fence ends the grant.
    """
    process, group = f"p-{worker}", worker_group(NAME)
    hold = backend.hold(HOLDS + process, f"process 7 of {worker}")
    value = msgspec.json.encode({"borrower": f"{worker}~{process}.0", "process": process})
    backend.store.commit(Change(writes={grant_key(group, f"0.{each}"): value for each in shards}))
    enter(backend, group, worker, process, 0)
    return hold


def fails(*values: Any, times: int = 1000) -> Callable[[Any], CallOutcome]:
    """Return a handler that fails for some values, a number of times each."""
    left = dict.fromkeys(values, times)

    def handler(value: Any) -> CallOutcome:
        if left.get(value, 0):
            left[value] -= 1
            return FAILED
        return SUCCESS

    return handler


def fence_of(backend: Backend, shard: int = 0) -> int:
    """Return the present epoch of a shard."""
    entry = backend.store.get(FENCES + shard_fence(NAME, f"0.{shard}", 0).name)
    return 0 if entry is None else entry.version
