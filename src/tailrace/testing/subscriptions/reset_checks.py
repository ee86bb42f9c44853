"""The invariants of a simulated subscription over its offset resets.

Every message that is due, again after each reset that reaches it, is handled, or is a dead letter,
or was passed over; in order per key, and what was due before a reset before what is due after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from tailrace.message import Partition
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.moved_record import origin_in
from tailrace.subscription.shard.queues import Queue
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.reset.plan import ResetPlan, parse_queue
from tailrace.testing.groups.storage import SimulatedStorage
from tailrace.testing.simulation import Simulation
from tailrace.topic.ledger import Progress

_Lane: TypeAlias = "tuple[str, bytes | Origin]"


class ResetChecks:
    """What is due of each subscription, checked for one world."""

    def __init__(self, simulation: Simulation, storage: SimulatedStorage) -> None:
        self._simulation = simulation
        self._storage = storage
        self._due: defaultdict[_Lane, list[Origin]] = defaultdict(list)
        """The messages of each key, in the order in which they are due."""
        self._first: defaultdict[_Lane, int] = defaultdict(int)
        """The index of the first one that has not ended."""
        self._places: dict[tuple[str, Origin], tuple[_Lane, int]] = {}
        self._ended: set[tuple[str, Origin]] = set()
        self._numbers: dict[tuple[str, Partition], int] = {}
        """The last reset of partitions; that of the subscription for others."""
        self._last: defaultdict[str, int] = defaultdict(int)

    def pushed(self, subscription: str, partition: Partition, offset: int) -> None:
        """Record a message of the topic of a subscription: it is due."""
        number = self._numbers.get((subscription, partition), self._last[subscription])
        self._expect(subscription, Origin(partition, offset, number))

    def reset(
        self,
        stored: StoredSubscription,
        plan: ResetPlan,
        ledgers: Mapping[Partition, Progress],
    ) -> list[Origin]:
        """Record a reset that is about to be made, with no other one pending. Returns the messages
        that it passes over."""
        name, passed = stored.name, []
        queue = parse_queue(plan.queue)
        for where, _, mark, *_ in plan.partitions:
            for record in self._storage.records.get(where, ()):
                if ledgers[where].acked(record.offset):
                    continue
                if queue is Queue.MQ:
                    number = self._numbers.get((name, where), self._last[name])
                    origin = Origin(where, record.offset, number)
                    self.excuse(name, origin)
                elif record.offset >= mark:
                    continue
                else:
                    origin = origin_in(record.headers or {})
                    self.excuse(name, origin)
                if record.offset < mark:
                    passed.append(origin)
        if queue is Queue.MQ:
            self._renumber(stored, plan)
        return passed

    def _renumber(self, stored: StoredSubscription, plan: ResetPlan) -> None:
        """Give the number of a reset to the partitions that it moves, and have their messages be
        due again."""
        name, topic = stored.name, stored.definition.topic
        for storage in stored.main.definition.storage_topics(topic):
            for number in range(storage.partitions):
                where = Partition(topic, storage.storage, number)
                self._numbers.setdefault((name, where), self._last[name])
        self._last[name] = plan.number
        for each in sorted(plan.partitions, key=lambda each: each.partition):
            self._numbers[name, each.partition] = plan.number
            for record in self._storage.records.get(each.partition, ()):
                if record.offset >= each.mark:
                    self._expect(name, Origin(each.partition, record.offset, plan.number))

    def excuse(self, subscription: str, origin: Origin) -> None:
        """Record that a message need not be handled."""
        self._ended.add((subscription, origin))

    def handled(self, subscription: str, origin: Origin) -> None:
        """Check a message that a handler has handled: all that were due before it have ended."""
        found = self._places.get((subscription, origin))
        if found is None:
            raise self._simulation.violation(f"{subscription} handled {origin}, which is not due")
        lane, index = found
        first = self._first_left(lane)
        if index > first:
            before = self._due[lane][first]
            raise self._simulation.violation(f"{subscription} handled {origin} before {before}")
        self._ended.add((subscription, origin))

    def check_ended(self, subscription: str) -> None:
        """Check, once everything is consumed, that everything that was due has ended."""
        for lane, due in self._due.items():
            first = self._first_left(lane)
            if lane[0] == subscription and first < len(due):
                raise self._simulation.violation(f"{subscription} has lost {due[first]}")

    def _expect(self, subscription: str, origin: Origin) -> None:
        key = self._storage.record(origin.partition, origin.offset).key
        lane: _Lane = (subscription, key or origin)
        self._places[subscription, origin] = lane, len(self._due[lane])
        self._due[lane].append(origin)

    def _first_left(self, lane: _Lane) -> int:
        due, first = self._due[lane], self._first[lane]
        while first < len(due) and (lane[0], due[first]) in self._ended:
            first += 1
        self._first[lane] = first
        return first
