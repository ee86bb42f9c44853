"""Whatever happens to a shard and its storage, the order of a key is kept and nothing is lost."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import booleans, floats, integers, lists, sampled_from

from tailrace.backend.contract import Transaction
from tailrace.delivery.outcome import SUCCESS, CallOutcome
from tailrace.errors import BackendUnavailable
from tailrace.subscription.shard.queues import OnDeadLetter, Queue
from tests.support.counts import count
from tests.support.faulty_backend import unknown
from tests.support.shards import FAILED, REJECTED, Owner, Shop

KEYS = ["a", "b", "c", None]
Hook = Callable[[Transaction], None]


def _down(transaction: Transaction) -> None:
    raise BackendUnavailable("the storage does not answer", "try again")


def _unknown(transaction: Transaction) -> None:
    unknown()


def _pass(transaction: Transaction) -> None:
    """Let every commit pass."""


class ShardModel(RuleBasedStateMachine):
    """A shard, its owners one after the other, and a record of what handlers saw."""

    @initialize(
        policy=sampled_from(OnDeadLetter),
        attempts=integers(1, 3),
        concurrency=integers(1, 4),
        gap_every=integers(0, 2),
    )
    def begin(self, policy: OnDeadLetter, attempts: int, concurrency: int, gap_every: int) -> None:
        self.shop = Shop(
            partitions=2,
            policy=policy,
            attempts=attempts,
            concurrency=concurrency,
            gap_every=gap_every,
            filter="not header.country exists",
        )
        self.numbers = itertools.count()
        self.pauses = 0
        self.unwanted: set[int] = set()
        self.keys: dict[int, str | None] = {}
        self.pushed: defaultdict[str | None, list[int]] = defaultdict(list)
        self.succeeded: set[int] = set()
        self.owner: Owner = self.shop.owner()
        for key in KEYS:
            self.push(key, 2)

    @rule(key=sampled_from(KEYS), count=integers(1, 3))
    def push(self, key: str | None, count: int) -> None:
        for _ in range(count):
            value = next(self.numbers)
            self.keys[value] = key
            self.pushed[key].append(value)
            self.shop.push(key, value)
        self.owner.machine.wake(self.owner.stored.streams(0).mq)

    @rule(key=sampled_from(KEYS), count=integers(1, 3))
    def push_what_does_not_match(self, key: str | None, count: int) -> None:
        for _ in range(count):
            value = next(self.numbers)
            self.unwanted.add(value)
            self.shop.push(key, value, headers={"country": "US"})
        self.owner.machine.wake(self.owner.stored.streams(0).mq)

    @rule()
    def call(self) -> None:
        before = set(self.owner.in_flight)
        for value in self.owner.start_calls():
            assert value not in self.unwanted
            if value not in before:
                self._check_call(value)
        self._replace_lost()
        keys = [self.keys[value] for value in self.owner.in_flight if self.keys[value]]
        assert len(keys) == len(set(keys)), "two messages of a key are in flight"

    def _check_call(self, value: int) -> None:
        """All earlier messages of its key succeeded, or are dead letters by policy."""
        key = self.keys[value]
        if key is None or value in self.succeeded:
            return
        dead = set(self.shop.queued(Queue.DLQ))
        for earlier in self.pushed[key][: self.pushed[key].index(value)]:
            assert earlier in self.succeeded or (
                earlier in dead and self.shop.policy is OnDeadLetter.CONTINUE
            ), f"{value} is called before {earlier}"

    @rule(outcomes=lists(sampled_from([SUCCESS, FAILED, FAILED, REJECTED]), max_size=6))
    def work(self, outcomes: list[CallOutcome]) -> None:
        """Call, and let some calls end."""
        for outcome in outcomes:
            self.call()
            if not self.owner.in_flight:
                return
            value = min(self.owner.in_flight)
            if outcome is SUCCESS:
                self.succeeded.add(value)
            self.owner.finish(value, outcome)

    @rule()
    def commit(self) -> None:
        self.owner.commit()
        self._replace_lost()

    @rule(fault=sampled_from([_down, _unknown]), after=booleans(), times=integers(1, 3))
    def fail_the_next_commits(self, fault: Hook, after: bool, times: int) -> None:
        """Let commits fail, from the next one on."""
        backend, left = self.shop.backend, times

        def fail(transaction: Transaction) -> None:
            nonlocal left
            if transaction.fence is not None:  # a push has none
                left -= 1
                if left >= 0:
                    fault(transaction)

        if after and fault is _unknown:
            backend.after = fail
        else:
            backend.before = fail

    def _replace_lost(self) -> None:
        if self.owner.lost:
            self.crash()

    @rule()
    def crash(self) -> None:
        self.owner = self.shop.owner()

    @rule()
    def leave(self) -> None:
        for value in list(self.owner.in_flight):
            self.succeeded.add(value)
            self.owner.finish(value)
        self._heal()
        self.owner.leave()
        self.owner = self.shop.owner()

    def _heal(self) -> None:
        self.shop.backend.before = self.shop.backend.after = _pass

    @rule(seconds=floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.shop.now += seconds

    @invariant()
    def no_message_is_in_a_queue_twice(self) -> None:
        for queue in (Queue.RQ, Queue.DLQ):
            values = self.shop.queued(queue)
            assert len(values) == len(set(values))

    @invariant()
    def every_message_is_counted_once(self) -> None:
        stats = self.shop.stats()
        assert stats.total.inserted == len(self.keys) + len(self.unwanted)
        assert stats.conserved, stats.total

    @rule()
    def pause(self) -> None:
        """Let nothing be called. Once nothing is in flight, the owner says so."""
        self.pauses += 1
        self.owner.machine.paused = self.pauses

    @rule()
    def resume(self) -> None:
        self.owner.machine.paused = 0

    @invariant()
    def nothing_is_in_flight_once_a_pause_is_quiet(self) -> None:
        paused = self.owner.machine.paused
        if paused and self.shop.counts().quiet == paused:
            assert not self.owner.in_flight
            assert self.shop.stats().total.in_flight == 0

    def teardown(self) -> None:
        if not hasattr(self, "shop"):
            return
        self._heal()
        self.resume()
        for value in list(self.owner.in_flight):
            self.owner.finish(value)
            self.succeeded.add(value)
        for _ in range(200):
            self.shop.now += 10
            self.call()
            for value in list(self.owner.in_flight):
                self.owner.finish(value)
                self.succeeded.add(value)
            self.owner.commit()
        dead = self.shop.queued(Queue.DLQ)
        assert self.succeeded | set(dead) == set(self.keys), "messages are lost"
        assert len(self.owner.machine.lag.lanes[Queue.RQ]) == 0
        self._check_dead(dead)
        self.owner.leave()
        assert self.owner.finished_reading()
        total = self.shop.stats().total
        handled = len(self.keys) - total.dead - total.discarded
        assert (total.acked, total.filtered) == (handled, len(self.unwanted))
        assert total.accounted == total.inserted
        tables = self.shop.backend.table
        assert tables.scan("group-reach/subscription:crm") == []

    def _check_dead(self, dead: list[int]) -> None:
        if self.shop.policy is OnDeadLetter.CONTINUE:
            return
        for key in KEYS[:-1]:
            parked = [value for value in dead if self.keys[value] == key]
            assert parked == self.pushed[key][len(self.pushed[key]) - len(parked) :]


TestShardModel: Any = ShardModel.TestCase
TestShardModel.settings = settings(
    max_examples=count("shard_histories", test=30, soak=1000), stateful_step_count=40, deadline=None
)
