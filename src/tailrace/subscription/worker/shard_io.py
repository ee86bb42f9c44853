"""The reads and commits of a worker's shards.

A piece of work calls the backend, without the lock of its driver, and returns its effect on the
machine. The driver applies the effect with its lock, unless the shard was removed meanwhile. So
processes, simulations and tests of handlers do the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from tailrace.backend.contract import FENCES, Backend
from tailrace.clock import Clock
from tailrace.delivery.fetched import FetchedBatch
from tailrace.errors import (
    BackendUnavailable,
    Busy,
    Conflict,
    CorruptBatch,
    Error,
    Fenced,
    HubClosed,
    OutcomeUnknown,
    Sealed,
    UnknownGroup,
    UnknownTopic,
)
from tailrace.group.protocol.events import Event
from tailrace.message import Message, Partition
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.intake import MainStream
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.read_sizes import ReadSizes
from tailrace.subscription.shard.step import StepKind
from tailrace.subscription.store.definition import (
    StoredSubscription,
    SubscriptionDefinition,
    find_definition,
    find_subscription,
)
from tailrace.subscription.store.key_state import read_attempts
from tailrace.subscription.store.ledgers import OwnedLedgers
from tailrace.subscription.store.names import ShardName, replay_of, shard_fence, worker_group
from tailrace.subscription.store.pause import pause_fenced, pause_version
from tailrace.subscription.store.reading import read_batch
from tailrace.subscription.store.requests.entries import read_requests, remove_request
from tailrace.subscription.store.reset.numbers import with_reset_numbers
from tailrace.subscription.store.takeover import (
    ended,
    permit_workers,
    read_permits,
    read_takeover,
)
from tailrace.subscription.store.transaction import FindView, ShardTargets, commit_shard
from tailrace.subscription.worker.effects import Effects, UnitEffects
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.owned_shard import OwnedShard

READ_BYTES: Final = 256 << 10
"""The most that one read of a shard returns, unless a single record is larger."""

Effect: TypeAlias = Callable[[], None]
Work: TypeAlias = Callable[[], Effect]
Decode: TypeAlias = Callable[[Message[Any]], Any]


class StoredShard(OwnedShard):
    """A shard that a worker owns, with the topics that it appends to."""

    def __init__(self, unit: str, epoch: int, options: ShardOptions, worker: str) -> None:
        super().__init__(unit, epoch, options, worker)
        self.number = ShardName.parse(unit).shard
        self.targets: ShardTargets | None = None
        self.effects: UnitEffects | None = None
        """What the database of the handler has stored for the shard, if it has one."""
        self.reads = ReadSizes()
        self.reads_again = ReadSizes()


S = TypeVar("S", bound=StoredShard)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDriver(Generic[S]):
    """What the driver of a worker provides for the work of its shards.

    `lock` guards the machine. `await_records` wakes the machine when these partitions have records
    at these offsets. `post` sends events to the runtime, and `lose` gives a shard up. `stored` is
    called right after a commit, and `not_stored` with the error of one that wrote nothing. `took`
    is called with the seconds that a commit has taken. `decode` decodes the value of a message.
    `find_view` finds the topics that handlers push to, and `effects` is the database that they
    write to. `defined` is called with each definition that is read, before the messages that follow
    it are called.
    """

    lock: AbstractContextManager[Any]
    clock: Clock
    await_records: Callable[[Mapping[Partition, int]], None]
    post: Callable[[list[Event]], None]
    lose: Callable[[S], None]
    stored: Callable[[S, ShardCommit], None]
    not_stored: Callable[[Error], None] = lambda error: None
    took: Callable[[float], None] = lambda seconds: None
    decode: Decode
    find_view: FindView | None = None
    effects: Effects | None = None
    defined: Callable[[SubscriptionDefinition], None] = lambda definition: None


class ShardIO(Generic[S]):
    """The work of one worker with the backend.

    With the `identity` of its subscription, another one of the same name is none to it.
    """

    def __init__(
        self,
        machine: WorkerMachine[S],
        subscription: str,
        backend: Backend,
        driver: ShardDriver[S],
        *,
        identity: str | None = None,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._machine = machine
        self._subscription = subscription
        self._identity = identity
        self._replay = replay_of(subscription)
        self._backend = backend
        self._driver = driver
        self._read_bytes = read_bytes

    def next_work(self, owned: S, now: float) -> Work | None:
        """Return what a shard needs from the backend before it can continue; None if nothing.

        With the lock.
        """
        if owned.removed or owned.backs_off(now):
            return None
        if owned.machine.loaded and owned.definitions != self._machine.definitions:
            return partial(self._reopen, owned)
        kind, partition, offset, reset = owned.machine.step(now)
        if kind is StepKind.PAUSE:
            return partial(self._pause, owned, owned.machine.tripped)
        if kind is StepKind.LOAD:
            return partial(self._load, owned) if self._machine.may_load(owned) else None
        if kind is StepKind.READ and partition is not None:
            return partial(self._read, owned, owned.machine.intake[partition])
        if kind is StepKind.READ_AGAIN and partition is not None:
            return partial(self._read_again, owned, partition, offset)
        if kind is StepKind.READ_ATTEMPTS and partition is not None:
            return partial(self._read_attempts, owned, Origin(partition, offset, reset))
        if kind is StepKind.REMOVE_REQUEST:
            return partial(self._remove_request, owned, owned.machine.requests.to_remove[0])
        for stream in owned.machine.intake.to_watch() if owned.machine.loaded else ():
            stream.watched_from = stream.read_from
            self._driver.await_records({stream.partition: stream.read_from})
            return partial(self._inspect, owned, stream.partition)
        return None

    def commit(self, owned: S) -> Effect:
        """Store everything that is ready, in one transaction under the fence of the grant."""
        machine, driver = self._machine, self._driver
        with driver.lock:
            if owned.removed or not owned.machine.unsaved:
                return _nothing
            commit = owned.machine.start_commit()
        if commit is None:
            return _nothing
        assert owned.targets is not None
        fence = shard_fence(self._subscription, owned.name, owned.epoch)
        now_ms, began = driver.clock.now_ms(), driver.clock.monotonic()
        try:
            places = commit_shard(
                self._backend, owned.targets, commit, fence, now_ms, driver.find_view
            )
        except (Sealed, UnknownTopic) as gone:
            if isinstance(gone, UnknownTopic) and gone.topic not in owned.targets.queues:
                raise
            with driver.lock:
                machine.redefine()  # RQ or DLQ continue in another storage topic
            return lambda: machine.not_committed(owned, commit, driver.clock.monotonic())
        except HubClosed:
            raise
        except OutcomeUnknown:
            return lambda: driver.lose(owned)
        except (BackendUnavailable, Busy, Conflict) as error:
            driver.not_stored(error)
            return lambda: machine.not_committed(owned, commit, driver.clock.monotonic())
        driver.took(driver.clock.monotonic() - began)
        driver.stored(owned, commit)
        return lambda: driver.post(machine.committed(owned, commit, places))

    def _load(self, owned: S) -> Effect:
        """Take over a shard: read everything that is stored for it."""
        seen, stored = self._machine.definitions, self._stored()
        if stored.unit(owned.number) != owned.name:
            return lambda: self._driver.lose(owned)  # of a generation that has ended
        takeover = read_takeover(self._backend, stored, owned.number)
        targets = ShardTargets.of(stored, owned.number)
        paused = pause_version(self._backend, self._subscription)
        effects = self._take_over_effects(owned, stored)
        self._check_fence(owned)

        def effect() -> None:
            if not owned.machine.drained:
                owned.definitions, owned.targets, owned.effects = seen, targets, effects
                clock = self._driver.clock
                self._adopt(owned, stored, paused)
                owned.machine.load(takeover, clock.monotonic(), clock.now_ms())

        return effect

    def _take_over_effects(self, owned: S, stored: StoredSubscription) -> UnitEffects | None:
        """Become the owner of the shard in the database of the handler, and read what it has
        stored."""
        effects = self._driver.effects
        if effects is None:
            return None
        consumer = f"{stored.name}:{stored.definition.identity}"
        return effects.take_over(consumer, owned.name, owned.epoch)

    def _adopt(self, owned: S, stored: StoredSubscription, paused: int) -> None:
        """Let a shard follow the settings of its subscription."""
        machine, definition = owned.machine, stored.definition
        options = replace(
            machine.options,
            retry=definition.retry,
            policy=definition.policy,
            filter=definition.message_filter,
            calls_max=definition.load.concurrency_of(owned.number, definition.shards),
            breaker=definition.load.breaker_of(definition.shards),
            throttle=definition.load.throttle_of(definition.shards),
        )
        machine.follow(options)
        self._driver.defined(definition)
        machine.pause(paused)

    def _reopen(self, owned: S) -> Effect:
        """Read the definition again, what is stored about new partitions, and requests.

        `Fenced` after an offset reset, and `UnknownTopic` if a storage topic was deleted that the
        shard has not finished: its next owner starts with what is stored.
        """
        seen, stored = self._machine.definitions, self._stored()
        if stored.unit(owned.number) != owned.name:
            return lambda: self._driver.lose(owned)
        streams, ledgers = OwnedLedgers.read(self._backend, stored, owned.number)
        streams = with_reset_numbers(self._backend, stored, streams)
        with self._driver.lock:
            if owned.machine.intake.has_unfinished(streams.deleted):
                raise UnknownTopic(stored.definition.topic, self._backend.name)  # in parts
        permits = read_permits(self._backend, self._subscription, streams)
        gone = ended(self._backend, permit_workers(permits))
        targets = ShardTargets.of(stored, owned.number)
        paused = pause_version(self._backend, self._subscription)
        requests = read_requests(self._backend, self._subscription, owned.number)
        self._check_fence(owned)

        def effect() -> None:
            owned.definitions, owned.targets = seen, targets
            owned.machine.open(streams, ledgers, permits, gone)
            self._adopt(owned, stored, paused)
            for request in requests:
                owned.machine.request(request)
            self._machine.interrupt()  # a pause may end the wish of a suspect to be alone

        return effect

    def _read(self, owned: S, stream: MainStream) -> Effect:
        """Read ahead."""
        start, end = stream.read_from, stream.end
        batch = self._read_batch(owned.reads, stream.partition, start, end)

        def effect() -> None:
            for first, after in owned.machine.fetched(stream.partition, batch):
                if owned.effects is not None:
                    owned.effects.pass_over(Origin(stream.partition, first, stream.reset), after)

        return effect

    def _read_again(self, owned: S, partition: Partition, start: int) -> Effect:
        """Read the record of a message whose turn has come."""
        batch = self._read_batch(owned.reads_again, partition, start)
        if batch is None or start not in batch.offsets:
            where, reason = self._backend.name, "there is no message, and it is not acknowledged"
            raise CorruptBatch(str(partition), start, start, where, reason)
        return lambda: owned.machine.fetched_again(batch)

    def _read_attempts(self, owned: S, origin: Origin) -> Effect:
        """Read the attempts of a dead letter that is redelivered."""
        attempts = read_attempts(self._backend, self._subscription, origin)
        return lambda: owned.machine.attempts_read(origin, attempts)

    def _read_batch(
        self, sizes: ReadSizes, partition: Partition, start: int, end: int | None = None
    ) -> FetchedBatch | None:
        consumer = worker_group(self._subscription)
        bytes_max = sizes.next(partition, start, self._read_bytes)
        batch = read_batch(self._backend, consumer, partition, start, bytes_max, end)
        if batch is not None:
            sizes.ended(partition, batch.next_offset)
            batch.decode = self._driver.decode
            batch.replay = self._replay
        return batch

    def _pause(self, owned: S, why: str) -> Effect:
        """Pause the subscription, as the owner of the shard."""
        self.check_definition()
        name, fence = self._subscription, shard_fence(self._subscription, owned.name, owned.epoch)
        reason = f"{why} (shard {owned.number})"
        version = pause_fenced(self._backend, name, reason, fence, self._driver.clock.now_ms())

        def effect() -> None:
            for each in self._machine.shards.values():
                each.machine.pause(version)
            self._machine.interrupt()

        return effect

    def _inspect(self, owned: S, partition: Partition) -> Effect:
        """Check if there are more records by now, or never will be."""
        _, end, sealed = self._backend.log.bounds(partition)

        def effect() -> None:
            owned.machine.intake.inspected(partition, end, sealed)
            if owned.machine.intake.ended:
                self._driver.post(self._machine.progressed(owned))

        return effect

    def _remove_request(self, owned: S, request: str) -> Effect:
        """Remove the store entry of a request that has ended.

        In the thread that reads requests: otherwise a request could be read, removed and forgotten
        before it is added.
        """
        remove_request(self._backend, self._subscription, request, owned.name)
        return lambda: owned.machine.requests.removed(request)

    def _check_fence(self, owned: S) -> None:
        """Raise `Fenced` if the fence of the shard was raised, as an offset reset does.

        A shard that has nothing to store would not notice it, and keep what it has read before.
        """
        fence = shard_fence(self._subscription, owned.name, owned.epoch)
        entry = self._backend.store.get(FENCES + fence.name)
        if entry is None or entry.version != fence.epoch:
            raise Fenced(*fence, None if entry is None else entry.version)

    def check_definition(self) -> None:
        """Raise `UnknownGroup` if the subscription was deleted, also if another has its name."""
        entry = find_definition(self._backend, self._subscription)
        self._check(None if entry is None else entry.definition)

    def _stored(self) -> StoredSubscription:
        stored = find_subscription(self._backend, self._subscription)
        self._check(None if stored is None else stored.definition)
        assert stored is not None
        return stored

    def _check(self, definition: SubscriptionDefinition | None) -> None:
        if definition is None or self._identity not in (None, definition.identity):
            raise UnknownGroup(worker_group(self._subscription), self._backend.name)


def _nothing() -> None:
    """Have no effect."""
