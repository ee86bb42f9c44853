"""The shards of a simulated worker, and its work with the store for them.

A piece of work reaches the store at one instant, and returns the effect that its answer has later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.errors import BackendUnavailable, OutcomeUnknown, Sealed
from tailrace.message import Partition
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.store.definition import StoredSubscription, find_subscription
from tailrace.subscription.store.names import ShardName, shard_fence
from tailrace.subscription.store.reading import read_batch
from tailrace.subscription.store.takeover import read_bounds, read_ledgers, read_takeover
from tailrace.subscription.store.transaction import ShardTargets, commit_shard
from tailrace.subscription.worker.owned_shard import OwnedShard
from tailrace.testing.groups.worker import Answer
from tailrace.testing.process import Process
from tailrace.testing.unreliable import UnreliableBackend

if TYPE_CHECKING:
    from tailrace.testing.subscriptions.worker import SimulatedWorker

READ_BYTES: Final = 400
"""The most that one read returns: a few records, so that edge cases happen."""


class SimulatedShard(OwnedShard):
    """A shard in a simulated process."""

    def __init__(self, unit: str, epoch: int, options: ShardOptions, worker: str) -> None:
        super().__init__(unit, epoch, options, worker)
        self.number = ShardName.parse(unit).shard
        self.targets: ShardTargets | None = None


class ShardWork(NamedTuple):
    """Work with the store for a shard. `act` returns the effect that its answer has."""

    owned: SimulatedShard
    act: Callable[[], Answer]


class SimulatedShardIO:
    """The work of one worker with the store. Each method calls the store, and returns the effect of
    the answer on the machine."""

    def __init__(
        self,
        session: SimulatedWorker,
        subscription: str,
        process: Process,
        backend: UnreliableBackend,
    ) -> None:
        self._session = session
        self._subscription = subscription
        self._process = process
        self._backend = backend

    def load(self, owned: SimulatedShard) -> Answer:
        """Take over a shard: read everything that is stored for it."""
        seen, stored = self._session.machine.definitions, self._stored()
        takeover = read_takeover(self._backend, stored, owned.number)
        targets = ShardTargets.of(stored, owned.number)

        def effect() -> None:
            if not owned.machine.drained:
                owned.definitions, owned.targets = seen, targets
                owned.machine.load(takeover, self._now(), self._process.clock.now_ms())

        return effect

    def reopen(self, owned: SimulatedShard) -> Answer:
        """Read the definition again, and what is stored about new partitions."""
        seen, stored = self._session.machine.definitions, self._stored()
        streams = stored.streams(owned.number)
        every = (*streams.mq, *streams.rq, *streams.dlq)
        ledgers = read_ledgers(self._backend, self._subscription, every)
        bounds = read_bounds(self._backend, self._subscription, streams)
        targets = ShardTargets.of(stored, owned.number)

        def effect() -> None:
            owned.definitions, owned.targets = seen, targets
            owned.machine.open(streams, ledgers, bounds)

        return effect

    def read(self, owned: SimulatedShard, partition: Partition, start: int) -> Answer:
        """Read ahead."""
        consumer = self._session.group
        batch = read_batch(self._backend, consumer, partition, start, READ_BYTES)
        return lambda: owned.machine.fetched(partition, batch)

    def read_again(self, owned: SimulatedShard, partition: Partition, start: int) -> Answer:
        """Read the record of a message whose turn has come."""
        batch = read_batch(self._backend, self._session.group, partition, start, READ_BYTES)
        assert batch is not None, "a record that was read before is there"
        return lambda: owned.machine.fetched_again(batch)

    def inspect(self, owned: SimulatedShard, partition: Partition) -> Answer:
        """Check if there are more records by now, or never will be."""
        _, end, sealed = self._backend.log.bounds(partition)
        return lambda: owned.machine.intake.inspected(partition, end, sealed)

    def commit(self, owned: SimulatedShard) -> Answer:
        """Store everything that is ready, in one transaction under the fence of the grant."""
        session, machine = self._session, self._session.machine
        if owned.removed or not owned.machine.unsaved:
            return lambda: None
        commit = owned.machine.start_commit()
        if commit is None:
            return lambda: None
        assert owned.targets is not None
        fence = shard_fence(self._subscription, owned.name, owned.epoch)
        now_ms = self._process.clock.now_ms()
        try:
            places = commit_shard(self._backend, owned.targets, commit, fence, now_ms)
        except Sealed:
            machine.redefine()
            return lambda: machine.not_committed(owned, commit, self._now())
        except OutcomeUnknown:
            return lambda: session.lose(owned)
        except BackendUnavailable:
            return lambda: machine.not_committed(owned, commit, self._now())
        session.checks.group.committed(session, owned.name, owned.epoch)
        return lambda: session.post(machine.committed(owned, commit, places))

    def _stored(self) -> StoredSubscription:
        stored = find_subscription(self._backend, self._subscription)
        assert stored is not None, "no world deletes its subscription"
        return stored

    def _now(self) -> float:
        return self._process.clock.monotonic()
