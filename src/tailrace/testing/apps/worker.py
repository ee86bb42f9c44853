"""A worker of a subscription in virtual time: it drives the machine of its shards in one thread.

The machine, its shards and their reads and commits are those of a real worker. A worker that starts
makes itself the leader of its group, and grants all shards to itself in one commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import CallOutcome
from tailrace.delivery.process_gate import ProcessGate
from tailrace.errors import UnknownGroup, UnknownSubscription
from tailrace.group.protocol.actions import CommitGrants, Elect, NewGrant
from tailrace.group.protocol.events import Elected, GrantsCommitted
from tailrace.group.protocol.names import borrower_name
from tailrace.group.store import presence
from tailrace.group.store.grants import commit_grants, elect, find_leader
from tailrace.message import Partition
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.lifecycle import read_definition
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.shard_units import ShardUnits
from tailrace.subscription.worker.calls import Call, outcome_without_call
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.outputs import DeliveryTransaction, FindTopic, OutputTopics
from tailrace.subscription.worker.shard_io import Decode, ShardDriver, ShardIO, StoredShard, Work
from tailrace.subscription.worker.turn_delivery import delivery_of

T = TypeVar("T")

_OWNER: Final = "a run of an app in a test"


class VirtualWorker:
    """The only worker of a subscription. For one thread. `start` before anything else. `gate` is
    that of the process, which workers of other subscriptions share."""

    machine: WorkerMachine[StoredShard]

    def __init__(
        self,
        backend: Backend,
        subscription: str,
        options: WorkerOptions,
        *,
        clock: Clock,
        random: Random,
        decode: Decode,
        find_topic: FindTopic,
        gate: ProcessGate,
    ) -> None:
        self.subscription = subscription
        self._group = worker_group(subscription)
        self._backend = backend
        self._options = options
        self._clock = clock
        self._random = random
        self._decode = decode
        self._gate = gate
        self._outputs = OutputTopics(backend, find_topic) if options.transactional else None
        self._units = ShardUnits(backend)
        self._follower = backend.follower()
        self._awaited: dict[Partition, int] = {}
        self._lives = self._seen = 0
        self._woken = False

    # Its life.

    def start(self) -> None:
        """Begin a life, as a process that starts: own every shard, and start from what is
        stored."""
        self._lives += 1
        process = f"{self.subscription}.{self._lives}"
        self._hold = self._backend.hold(presence.HOLDS + process, _OWNER)
        definition = read_definition(self._backend, self.subscription).definition
        shard = replace(self._options.shard_options(definition), slice_max=0)
        self.machine = WorkerMachine(
            process,
            shard,
            make_shard=lambda unit, epoch: StoredShard(unit, epoch, shard, process),
            notify=lambda: None,
        )
        self.machine.enter(self._gate, self._wake)
        driver: ShardDriver[StoredShard] = ShardDriver(
            lock=contextlib.nullcontext(),
            clock=self._clock,
            await_records=self._await_records,
            post=lambda events: None,
            lose=self._lose,
            stored=lambda owned, commit: None,
            decode=self._decode,
            find_view=None if self._outputs is None else self._outputs.view,
            effects=self._options.effects,
        )
        self._io = ShardIO(self.machine, self.subscription, self._backend, driver)
        self._awaited.clear()
        presence.enter(self._backend, self._group, process, process, self._clock.now_ms())
        self._grant()

    def stop(self) -> None:
        """End the life in an orderly way: everything is stored."""
        for owned in list(self.machine.shards.values()):
            self.machine.drain(owned.name, owned.epoch)
            while not owned.machine.drained:
                self._commit([owned])
        presence.leave(self._backend, self._group, self.machine.session)
        self.kill()

    def kill(self) -> None:
        """End the life at once: nothing more is stored."""
        for owned in list(self.machine.shards.values()):
            self.machine.drop(owned.name, owned.epoch)
        self.machine.leave()
        self._hold.release()

    # Its calls.

    def next_call(self) -> Call | None:
        """Return a message to call now; None if there is none.

        Messages that do not pass the filter end here. Raises `UnknownSubscription` or
        `UnknownTopic` if one of them was deleted.
        """
        while (found := self._next()) is not None:
            owned, turn = found
            call = Call(owned, (turn,), (self._delivery(turn),), self._options.batch)
            outcome = outcome_without_call(call, self._options.filter)
            if outcome is None:
                return call
            self.ended(call, outcome)
        return None

    def _delivery(self, turn: Turn) -> Delivery[Any]:
        delivery = delivery_of(turn)
        if self._outputs is not None:
            delivery.bind(transaction=DeliveryTransaction(turn, self._outputs))
        return delivery

    def ended(self, call: Call, outcome: CallOutcome) -> None:
        """Record the outcome of a call."""
        if self._outputs is not None:
            call.deliveries[0].tx.end()
        self.machine.finished(
            call.owned,
            call.turns[0],
            outcome,
            now=self._clock.monotonic(),
            now_ms=self._clock.now_ms(),
            random=self._random.random(),
        )

    @property
    def due_at(self) -> float:
        """When the next attempt is due; infinity if none is."""
        return self.machine.due_at(self._clock.monotonic())

    def save(self) -> bool:
        """Store all progress, which may open the next storage topic. False if there is none."""
        unsaved = self.machine.unsaved(self._clock.monotonic())
        self._commit(unsaved)
        return bool(unsaved)

    def pop_woken(self) -> bool:
        """Return, once, True if another worker of the process lets this one call again."""
        woken, self._woken = self._woken, False
        return woken

    def _wake(self) -> None:
        self._woken = True

    # Its work.

    def _next(self) -> tuple[StoredShard, Turn] | None:
        while (found := self.machine.next_call()) is None:
            if not self._work():
                return self.machine.next_call()  # the shards may have prepared one
        return found

    def _work(self) -> bool:
        """Do what the shards need before they can continue. False if they need nothing."""
        worked = self._notice()
        for owned in list(self.machine.shards.values()):
            while (work := self._io.next_work(owned, self._clock.monotonic())) is not None:
                self._apply(owned, work)
                worked = True
        due = self.machine.to_commit(self._clock.monotonic())
        self._commit(due)
        return worked or bool(due)

    def _notice(self) -> bool:
        """Follow the commits since the last call: new records, and changes of the store."""
        if not self._follower.wait(0):
            return False
        self._follower.arm()
        noticed = False
        for entry in self._backend.store.watch("", self._seen):
            self._seen = entry.version
            concern = self._units.concerns(entry)
            if concern is None or concern.group not in (None, self._group):
                continue
            noticed = True
            if concern.units_changed or concern.may_have_ended:
                self._existing(lambda: self._units.units(self._group))
            if concern.sessions_concerned:
                self.machine.redefine()
        ready = [each for each, offset in self._awaited.items() if self._has_more(each, offset)]
        for each in ready:
            del self._awaited[each]
        self.machine.wake(ready)
        return noticed or bool(ready)

    def _await_records(self, offsets: Mapping[Partition, int]) -> None:
        self._awaited |= offsets

    def _has_more(self, partition: Partition, offset: int) -> bool:
        """True if there are records from an offset on, or never will be."""
        _, end, sealed = self._backend.log.bounds(partition)
        return sealed or end > offset

    def _commit(self, shards: list[StoredShard]) -> None:
        for owned in shards:
            self._apply(owned, partial(self._io.commit, owned))

    def _apply(self, owned: StoredShard, work: Work) -> None:
        effect = self._existing(work)
        if not owned.removed:
            effect()

    def _existing(self, act: Callable[[], T]) -> T:
        """Do something with the subscription. Raises `UnknownSubscription` if it was deleted."""
        try:
            return act()
        except UnknownGroup as error:
            raise UnknownSubscription(self.subscription, self._backend.name) from error

    def _lose(self, owned: StoredShard) -> None:
        raise AssertionError(f"a commit of shard {owned.name} has an unknown outcome in memory")

    def _grant(self) -> None:
        """Own every shard, at a new epoch. A worker that had one before cannot store any more."""
        backend, group, process = self._backend, self._group, self.machine.session
        leader = find_leader(backend, group).entry
        elected = elect(backend, process, Elect(group, leader.term if leader else 0), self._units)
        assert isinstance(elected, Elected), "there is no other process"
        basis = self._units.units(group)
        before = {grant.unit: grant.epoch for grant in elected.grants}
        borrower = borrower_name(process, process, 1)
        granted = tuple(
            NewGrant(unit.name, borrower, process, before.get(unit.name, 0)) for unit in basis.units
        )
        action = CommitGrants(group, 1, elected.term, basis.versions, granted, ())
        committed = commit_grants(backend, action)
        assert isinstance(committed, GrantsCommitted), "there is no other process"
        self._seen = committed.epoch
        for unit in basis.units:
            self.machine.install(unit.name, committed.epoch)
