"""A worker of a subscription in one life of a simulated process: it drives a `WorkerMachine`.

The machine and its shards are those of `tailrace.subscription`. Here are the driver's parts:
virtual time, two threads for the store, which may fail, and the calls of handlers, which take
virtual time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from tailrace.delivery.delivery import Delivery
from tailrace.delivery.outcome import outcome_of
from tailrace.delivery.process_gate import ProcessGate
from tailrace.errors import Fenced, UnknownTopic
from tailrace.group.protocol.events import Event, Subscribed, Unsubscribed
from tailrace.message import Message, Partition
from tailrace.subscription.shard.attempts import Origin
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.shard.payloads import RecordRow
from tailrace.subscription.shard.turn import Turn
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.shard_io import ShardDriver, ShardIO, StoredShard, Work
from tailrace.subscription.worker.turn_delivery import delivery_of
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.groups.session import RETRY_S, SOON_S
from tailrace.testing.groups.thread import SimulatedThread
from tailrace.testing.groups.worker import Answer
from tailrace.testing.process import Process
from tailrace.testing.subscriptions.checks import SubscriptionChecks

REVOKE_TIMEOUT_S: Final = 35.0

READ_BYTES: Final = 400
"""The most that one read returns: a few records, so that edge cases happen."""

Handler: TypeAlias = Callable[[Delivery[Any]], object]


class ShardWork(NamedTuple):
    """Work with the store for a shard."""

    owned: StoredShard
    act: Work


_Thread: TypeAlias = SimulatedThread[ShardWork]


class KillWorker(Exception):
    """Raised by a handler of a test: its process dies."""


@dataclass(frozen=True, slots=True)
class WorkingOptions:
    """The options of a simulated worker. A call takes a random time within `takes_s`."""

    subscription: str
    shard: ShardOptions
    handler: Handler
    takes_s: tuple[float, float]
    progress_interval_s: float


class SimulatedWorker:
    """A session of a simulated process, as its `GroupProgram` uses it."""

    def __init__(
        self,
        name: str,
        working: WorkingOptions,
        process: Process,
        program: GroupProgram,
        checks: SubscriptionChecks,
        decode: Callable[[Message[Any]], Any],
        gate: ProcessGate,
    ) -> None:
        self.id = name
        self.group = worker_group(working.subscription)
        self.ended = False
        self.worker = program.make_worker()
        self.progress_interval_s = working.progress_interval_s
        self.checks = checks
        self.machine: WorkerMachine[StoredShard] = WorkerMachine(
            name,
            working.shard,
            make_shard=lambda unit, epoch: StoredShard(unit, epoch, working.shard, process.token),
            notify=self._notify,
        )
        self.machine.enter(gate, self.machine.interrupt)
        self._working = working
        self._process = process
        self._program = program
        self._random = program.random
        driver: ShardDriver[StoredShard] = ShardDriver(
            lock=contextlib.nullcontext(),
            clock=process.clock,
            await_records=lambda offsets: program.await_records(name, offsets),
            post=self.post,
            lose=self.lose,
            stored=self._stored,
            decode=decode,
        )
        self._io = ShardIO(
            self.machine, working.subscription, program.backend, driver, read_bytes=READ_BYTES
        )
        self._leaving = self._notified = self._saving = self._progress_due = False
        self._timer_at = inf
        self._steps: _Thread = SimulatedThread(self._do_steps())
        self._commits: _Thread = SimulatedThread(self._do_commits())
        self._workers = {self._steps: self.worker, self._commits: program.make_worker()}

    @property
    def units(self) -> dict[str, int]:
        """The shards that the worker owns, with their epochs."""
        return {owned.name: owned.epoch for owned in self.machine.shards.values()}

    def may_deliver(self, unit: str, epoch: int) -> bool:
        """True if the worker would call messages of this shard now, by its own clock."""
        owned = self.machine.find(unit, epoch)
        if owned is None or not owned.machine.loaded or owned.machine.draining:
            return False
        return self._now() < self._program.until(self.id)

    # What the program calls.

    def start(self) -> None:
        """Join the group of the subscription's workers."""
        self._program.post(Subscribed(self.id, self.group, REVOKE_TIMEOUT_S))
        self._continue(self._steps)
        self._continue(self._commits)

    def leave(self) -> None:
        """Call no more; depart once every call has ended and everything is stored."""
        self._leaving = True
        self._program.post(Unsubscribed(self.id))
        self.machine.interrupt()

    def install(self, unit: str, epoch: int) -> None:
        """Own a granted shard."""
        self.checks.group.acquired(self, unit, epoch)
        self.machine.install(unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        """Call no more of a shard, and post `Drained` once everything of it is stored."""
        answer = self.machine.drain(unit, epoch)
        if answer is not None:
            self._program.post(answer)

    def drop(self, unit: str, epoch: int) -> None:
        """Own a shard no longer."""
        self.checks.group.released(self, unit, epoch)
        owned = self.machine.find(unit, epoch)
        if owned is not None:
            self.checks.left(self, [owned.machine.alone])
        self.machine.drop(unit, epoch)

    def departed(self) -> None:
        """End: the worker has left or died."""
        self.ended = True
        self._steps.end()
        self._commits.end()
        shards = list(self.machine.shards.values())
        self.checks.died(self, [owned.machine.alone for owned in shards])
        for owned in shards:
            self.drop(owned.name, owned.epoch)
        self.machine.leave()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again."""
        self.machine.wake(partitions)

    def save(self) -> None:
        """Store all progress."""
        self._progress_due, self._saving = False, True
        self.machine.interrupt()

    def fail(self, error: BaseException) -> None:
        """Raise the error: in a simulation nothing ends a runtime."""
        raise error

    def store_changed(self) -> None:
        """Read the definition again."""
        self.machine.redefine()

    # Its threads.

    def _do_steps(self) -> Generator[ShardWork | None, bool, None]:
        """The thread that reads, and starts calls."""
        machine = self.machine
        while True:
            seen, worked = machine.version, False
            for owned in list(machine.shards.values()):
                work = self._io.next_work(owned, self._now())
                if work is not None:
                    worked = True
                    yield ShardWork(owned, work)
            worked = self._start_calls() or worked
            if self._commits.waits and machine.to_commit(self._now()):
                self._continue(self._commits)  # a step may prepare a call that waits for a commit
            elif machine.unsaved(self._now()):
                self._progress_is_due()
            if not worked and machine.version == seen:
                self._set_timer()
                yield None

    def _do_commits(self) -> Generator[ShardWork | None, bool, None]:
        """The thread that stores."""
        machine = self.machine
        while True:
            due = machine.to_commit(self._now())
            if self._saving:
                self._saving, due = False, machine.unsaved(self._now())
            for owned in due:
                yield ShardWork(owned, partial(self._io.commit, owned))
            if not due:
                yield None

    def _continue(self, thread: _Thread, succeeded: bool = True) -> None:
        """Run a thread until it waits, and have its work with the store done."""
        work = thread.resume(succeeded)
        if work is None:
            return
        owned, act = work

        def reach() -> Answer:
            try:
                effect = act()
            except (Fenced, UnknownTopic):
                return lambda: answered(lambda: self.lose(owned), succeeded=False)
            return lambda: answered(effect, succeeded=True)

        def answered(effect: Answer, *, succeeded: bool) -> None:
            if not self.ended:
                if not owned.removed:
                    effect()
                self._continue(thread, succeeded)

        def failed() -> None:
            answered(lambda: self.machine.failed(owned, self._now()), succeeded=False)

        self._workers[thread].do(reach, otherwise=failed)

    def _notify(self) -> None:
        """Let the threads check again, if they wait."""
        if not self._notified and not self.ended:
            self._notified = True
            self._process.after(0.0, self._notice)

    def _notice(self) -> None:
        self._notified = False
        for thread in (self._steps, self._commits):
            if thread.waits:
                self._continue(thread)

    def _set_timer(self) -> None:
        """Wake the threads when something is due."""
        now = self._now()
        at = self.machine.due_at(now)
        if self._paused and self.machine.shards:
            at = min(at, now + RETRY_S)
        if at < self._timer_at:
            self._timer_at = at
            self._process.after(max(at - now, SOON_S), lambda: self._timer_ended(at))

    def _timer_ended(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = inf
            self._notice()

    def _progress_is_due(self) -> None:
        if not self._progress_due:
            self._progress_due = True
            self._program.progress_due(self.id)

    def _stored(self, owned: StoredShard, commit: ShardCommit) -> None:
        """Check a commit that is stored."""
        self.checks.group.committed(self, owned.name, owned.epoch)
        if not owned.removed:
            self.checks.committed(self, (owned.name, owned.epoch), commit)

    # Its answers to the runtime.

    def lose(self, owned: StoredShard) -> None:
        """Give a shard up, which another worker owns or whose last commit is unknown."""
        self.checks.group.released(self, owned.name, owned.epoch)
        self.checks.left(self, [owned.machine.alone])
        self.post(self.machine.lost(owned))

    def post(self, events: list[Event]) -> None:
        """Post events to the runtime."""
        for event in events:
            self._program.post(event)

    # Its calls.

    def _start_calls(self) -> bool:
        """Start the calls that are possible. False if there was none."""
        started = False
        while not (self._leaving or self._paused):
            found = self.machine.next_call()
            if found is None:
                return started
            started = True
            owned, turn = found
            messages = _messages(turn)
            places = [owned.machine.lag.place(each) for each in messages]
            shard = owned.name, owned.epoch
            self.checks.beside(self, turn, self._alone)
            self.checks.called(self, self._working.subscription, shard, places, messages)
            takes_s = self._random.uniform(*self._working.takes_s)
            self._process.after(takes_s, partial(self._call, owned, turn, messages))
        self.machine.forgo()
        return started

    @property
    def _alone(self) -> list[Turn]:
        """The messages that are called alone in this process, or are about to be."""
        workers = [
            each for each in self._program.sessions.values() if isinstance(each, SimulatedWorker)
        ]
        shards = [owned for each in workers for owned in each.machine.shards.values()]
        return [owned.machine.alone for owned in shards if owned.machine.alone is not None]

    @property
    def _paused(self) -> bool:
        """True if the lease has ended."""
        return self._now() >= self._program.until(self.id)

    def _call(self, owned: StoredShard, turn: Turn, messages: list[Turn]) -> None:
        """Call the handler, whose time has passed. A slice fails with its first message that does,
        and is taken apart."""
        if self.ended:
            return
        error: Exception | None = None
        for each in messages:
            try:
                self._working.handler(delivery_of(each))
            except KillWorker:
                self._process.crash()
                return
            except Exception as raised:
                error = raised
                self.checks.failed(self, each.known_origin, error)
                break
        for each in messages:
            self.checks.ended(self, each)
            if error is None:
                self.checks.succeeded(self, each.known_origin)
        if error is not None and turn.slice is not None:
            self.machine.split(owned, [turn])
            return
        now, now_ms = self._now(), self._process.clock.now_ms()
        self.machine.finished(
            owned, turn, outcome_of(error), now=now, now_ms=now_ms, random=self._random.random()
        )

    def _now(self) -> float:
        return self._process.clock.monotonic()


def _messages(turn: Turn) -> list[Turn]:
    """Return a turn for each message of a call."""
    if turn.slice is None:
        return [turn]
    batch, rows = turn.slice
    base = turn.id - turn.slice.first
    return [
        Turn(
            turn.queue,
            batch.keys[row] or base + batch.offsets[row],
            base + batch.offsets[row],
            RecordRow(batch, row),
            Origin(batch.partition, batch.offsets[row], batch.reset),
        )
        for row in rows
    ]
