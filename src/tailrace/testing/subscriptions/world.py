"""A hub with simulated workers of subscriptions and faults.

    world = SubscriptionWorld(seed=7, faults=Faults(crash_every_s=5))
    world.topic("orders", partitions=4)
    world.subscription("crm", "orders", retry=Retry(attempts=3, first="1s"))
    for name in ("a", "b"):
        world.process(name).work("crm", handler)
    world.produce("orders", [("c7", 1), ("c8", 1)], every_s=0.5)
    world.run(30)
    world.run_until_consumed()

Every guarantee of subscriptions is checked at every step.
"""

from __future__ import annotations

from typing import Any, Final

from tailrace.delivery.load_control import UNLIMITED, LoadControl
from tailrace.delivery.process_gate import ProcessGate
from tailrace.delivery.retry import Retry
from tailrace.errors import Busy, InvalidValue
from tailrace.group.protocol.times import Times
from tailrace.group.store.start import StartLike
from tailrace.message import Partition, Receipt
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.queues import OnDeadLetter
from tailrace.subscription.shard.requests.request import RequestAction
from tailrace.subscription.store.definition import (
    NewSubscription,
    StoredSubscription,
    creation_of,
    find_subscription,
)
from tailrace.subscription.store.generations.asking import ask_for_shards
from tailrace.subscription.store.generations.waiting import next_generation
from tailrace.subscription.store.ledgers import read_ledger, read_ledgers
from tailrace.subscription.store.names import ShardName, worker_group
from tailrace.subscription.store.pause import pause, resume
from tailrace.subscription.store.requests.entries import pending_requests
from tailrace.subscription.store.requests.letters import PendingLetter, read_letters
from tailrace.subscription.store.requests.making import Requester, put_requests
from tailrace.subscription.store.requests.selection import LetterSelection
from tailrace.subscription.store.reset.entry import find_reset
from tailrace.subscription.store.reset.steps import (
    Operator,
    begin_reset,
    finish_reset,
    plan_reset,
    reset,
)
from tailrace.subscription.store.shard_units import ShardUnits
from tailrace.testing.faults import Faults
from tailrace.testing.groups.consumer import SimulatedProcess
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.world import GroupWorld
from tailrace.testing.process import Process
from tailrace.testing.subscriptions.checks import SubscriptionChecks
from tailrace.testing.subscriptions.worker import Handler, SimulatedWorker, WorkingOptions
from tailrace.testing.trace import Mark
from tailrace.topic.view import find

EVERY_LETTER: Final = LetterSelection()


class WorkerProcess(SimulatedProcess):
    """A process of a `SubscriptionWorld`, with one worker for each subscription that it works for.
    They join again when it restarts."""

    def __init__(self, world: SubscriptionWorld, name: str) -> None:
        super().__init__(world, name)
        self._subscriptions = world
        self._options: dict[str, WorkingOptions] = {}
        self._joined = 0
        self.sessions: dict[str, SimulatedWorker] = {}
        """Its workers, by subscription."""

    def work(
        self,
        subscription: str,
        handler: Handler,
        *,
        takes_s: tuple[float, float] = (0.001, 0.02),
        concurrency: int = 4,
        slice_max: int = 0,
        progress_interval_s: float = 1.0,
    ) -> None:
        """Work for a subscription, now and after every restart. `slice_max` is the most messages
        of one call; 0 if each is called by itself."""
        definition = self._subscriptions.stored(subscription).definition
        shard = ShardOptions(definition.retry, definition.policy, concurrency, slice_max=slice_max)
        self._options[subscription] = WorkingOptions(
            subscription, shard, handler, takes_s, progress_interval_s
        )
        self._begin(subscription)

    def start(self) -> None:
        """Begin a new life."""
        super().start()
        self.sessions.clear()
        self.start_again()

    def leave(self) -> None:
        """Stop working in an orderly way. `start_again` has it work again."""
        if self.alive:
            for session in self.sessions.values():
                self.program.unsubscribe(session.id)
            self.sessions.clear()

    def start_again(self) -> None:
        """Work again after `leave`."""
        if self.alive and not self.sessions:
            for subscription in self._options:
                self._begin(subscription)

    def _begin(self, subscription: str) -> None:
        self._joined += 1
        world, program = self._subscriptions, self.program
        session = self.sessions[subscription] = SimulatedWorker(
            f"{self.token}/{self._joined}",
            self._options[subscription],
            self,
            program,
            world.subscription_checks,
            world.decode,
            self._gate,
        )
        program.add(session, ShardUnits(program.backend))

    def _make(self, process: Process) -> GroupProgram:
        self._gate = ProcessGate()
        return GroupProgram(self._subscriptions, self)


class SubscriptionWorld(GroupWorld):
    """A simulated hub with subscriptions."""

    def __init__(
        self, seed: int, faults: Faults | None = None, *, times: Times | None = None
    ) -> None:
        super().__init__(seed, faults, times=times)
        self.subscription_checks = SubscriptionChecks(self.simulation, self.storage, self.checks)
        self._subscriptions: list[str] = []
        self._requests = 0

    def subscription(
        self,
        name: str,
        topic: str,
        *,
        retry: Retry,
        policy: OnDeadLetter = OnDeadLetter.BLOCK,
        shards: int | None = None,
        queue_partitions: int | None = None,
        load: LoadControl = UNLIMITED,
    ) -> None:
        """Create a subscription. RQ and DLQ have `queue_partitions`; None mirrors the topic."""
        main = find(self.storage, topic)
        assert main is not None
        queues = queue_partitions, queue_partitions
        new = NewSubscription(topic, retry, policy, shards, *queues, load=load)
        self.storage.store.commit(creation_of(name, new, main, now_ms=0, identity=name))
        self._subscriptions.append(name)
        self.subscription_checks.policies[name] = policy
        self.subscription_checks.calls_max[name] = load.concurrency_total

    def ask(
        self,
        subscription: str,
        action: RequestAction,
        selection: LetterSelection = EVERY_LETTER,
        *,
        break_order: bool = False,
    ) -> bool:
        """Make a request on dead letters, as an operator does. False if it is refused, or if it
        would select none."""
        self._requests += 1
        requester = Requester("operator", 1, f"dlq {action.value}")
        try:
            made = put_requests(
                self.storage,
                subscription,
                selection,
                action,
                requester,
                now_ms=int(self.now * 1000),
                break_order=break_order,
                id=f"request-{self._requests}",
            )
        except InvalidValue:
            return False
        checks = self.subscription_checks
        for position in checks.requests.asked(self.stored(subscription), made.id):
            checks.excuse(subscription, position)
        return bool(made.entries)

    def push(self, topic: str, value: Any, *, key: str | None = None) -> Receipt:
        """Push a message now."""
        receipt = super().push(topic, value, key=key)
        for name in self._subscriptions:
            if self.stored(name).definition.topic == topic:
                where = Partition(topic, receipt.storage, receipt.partition)
                self.subscription_checks.resets.pushed(name, where, receipt.offset)
        return receipt

    def reset(
        self, subscription: str, to: StartLike, *, queue: str = "mq", interrupted: bool = False
    ) -> bool:
        """Reset a subscription, as an operator does, whose process dies after the first step if the
        reset is `interrupted`. False if it is refused, or moves nothing."""
        finish_reset(self.storage, subscription)
        try:
            plan = plan_reset(self.storage, subscription, to, queue=queue)
        except InvalidValue:
            return False
        stored, checks = self.stored(subscription), self.subscription_checks
        if not plan.partitions or stored.definition.phase is not None:
            return False
        moved = [each.partition for each in plan.partitions]
        ledgers = read_ledgers(self.storage, stored, moved)
        self.checks.strict_order = False  # `ResetChecks` knows what is due
        for origin in checks.resets.reset(stored, plan, ledgers):
            checks.excuse(subscription, str(origin))
            checks.requests.passed(subscription, str(origin))
        step = begin_reset if interrupted else reset
        operator, now_ms = Operator("operator", 1, "reset"), int(self.now * 1000)
        step(self.storage, subscription, to, queue=queue, operator=operator, now_ms=now_ms)
        self.simulation.record(Mark.NOTE, "world", f"reset {plan.queue} to {plan.target}")
        return True

    def pause(self, subscription: str) -> None:
        """Pause a subscription, as an operator does."""
        pause(self.storage, subscription, "paused", "operator", int(self.now * 1000))

    def resume(self, subscription: str) -> None:
        """End a pause."""
        resume(self.storage, subscription)

    def reshard(self, subscription: str, shards: int) -> bool:
        """Ask for a number of shards, as an operator does. False if it is refused."""
        now_ms = int(self.now * 1000)
        try:
            return ask_for_shards(
                self.storage, subscription, shards, uneven=True, by="operator", now_ms=now_ms
            )
        except (Busy, InvalidValue):
            return False

    def letters(self, subscription: str) -> list[PendingLetter]:
        """Return the dead letters of a subscription."""
        return list(read_letters(self.storage, self.stored(subscription)))

    def stored(self, subscription: str) -> StoredSubscription:
        """Return a subscription as it is stored now."""
        found = find_subscription(self.storage, subscription)
        assert found is not None
        return found

    def worker(self, name: str) -> WorkerProcess:
        """Return the process of this name; start it if it does not exist."""
        process = self.process(name)
        assert isinstance(process, WorkerProcess)
        return process

    def outstanding(self) -> list[str]:
        """Describe the partitions that are not consumed and the units without one owner."""
        found = super().outstanding()
        for name in self._subscriptions:
            last = find_reset(self.storage.store, name)
            if last is not None and last.pending:
                found.append(f"{name} has not finished its reset")
            found += [f"{name} has not consumed {each}" for each in self._unfinished(name)]
            pending = pending_requests(self.storage, name)
            found += [f"{name} has not carried out {each.id}" for each in pending]
            stored = self.stored(name)
            definition, following = stored.definition, next_generation(stored)
            if following is not None:
                found.append(f"{name} has not changed to {following.shards} shards")
            for number in range(definition.shards):
                unit = str(ShardName(definition.generation, number))
                owners = self.checks.owners(worker_group(name), unit)
                if len(owners) != 1:
                    names = ", ".join(owner.id for owner in owners) or "nobody"
                    found.append(f"shard {unit} of {name} is owned by {names}")
        return found

    def run_until_consumed(self, *, within_s: float = 120.0) -> float:
        """End all faults, and let time pass until every message was handled or is a dead letter.

        `Violation` if a message was lost.
        """
        took_s = super().run_until_consumed(within_s=within_s)
        for name in self._subscriptions:
            checks, letters = self.subscription_checks, self.letters(name)
            checks.check_counts(self.stored(name), len(letters))
            for letter in letters:
                checks.excuse(name, letter.origin)
            checks.requests.check_ended(self.stored(name), iter(checks.dead[name]))
            checks.resets.check_ended(name)
            topic = self.stored(name).definition.topic
            lost = self.checks.audit(worker_group(name), {topic}).lost
            if lost:
                raise self.simulation.violation(f"{name} has lost {sorted(map(str, lost))}")
        return took_s

    def _unfinished(self, name: str) -> list[Partition]:
        """Return the partitions of MQ and RQ with records that the ledger does not hold."""
        stored = self.stored(name)
        found = []
        for shard in range(stored.definition.shards):
            streams = stored.streams(shard)
            for each in (*streams.mq, *streams.rq):
                records = self.storage.records.get(each, [])
                progress = read_ledger(self.storage, stored, each)
                if not all(progress.acked(record.offset) for record in records):
                    found.append(each)
        return found

    def _make_process(self, name: str) -> SimulatedProcess:
        return WorkerProcess(self, name)

    def _appended(self, partition: Partition) -> None:
        self.subscription_checks.appended(partition)
        super()._appended(partition)
