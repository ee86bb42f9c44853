"""A worker of a subscription in a process: it drives the machine of its shards.

The runtime grants and revokes shards. One thread does the steps of the shards, a few others store
their commits. A `CallRunner` calls the handlers in further threads.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import (
    BackendUnavailable,
    Conflict,
    Error,
    HubClosed,
    UnknownGroup,
    UnknownSubscription,
)
from tailrace.group.outage import Outage
from tailrace.group.protocol.events import Died, Event, Subscribed, Unsubscribed
from tailrace.group.runtime.runtime import Runtime
from tailrace.group.store import presence
from tailrace.message import Partition
from tailrace.reporting.reporters import reporters_of
from tailrace.subscription.shard.commit.commit import ShardCommit
from tailrace.subscription.shard.options import ShardOptions
from tailrace.subscription.store.definition import SubscriptionDefinition
from tailrace.subscription.store.names import replay_of, worker_group
from tailrace.subscription.worker.calls import CallRunner, CallSource
from tailrace.subscription.worker.claimed_id import ClaimedId
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.outputs import OutputTopics
from tailrace.subscription.worker.shard_io import Decode, ShardDriver, ShardIO, StoredShard
from tailrace.subscription.worker.threads import COMMITS_AT_ONCE, WorkerThreads
from tailrace.subscription.worker.worker_calls import WorkerCalls
from tailrace.subscription.worker.worker_reporter import WorkerReporter
from tailrace.terminal.signals import wait_for

REVOKE_EXTRA_S: Final = 10.0
"""How much longer than a call a shard may take to be released: a coroutine that was cancelled may
take half of it to end."""
LEAVE_S: Final = 10.0
"""The longest time that a worker without calls may take to store its last commits, and to leave."""

_log: Final = logging.getLogger("tailrace.subscription")


class WorkerSession(WorkerThreads):
    """One worker of a subscription, as the runtime of its process uses it.

    It ends with `UnknownSubscription` if another one, of another `identity`, has the name.
    """

    def __init__(
        self,
        backend: Backend,
        subscription: str,
        shard: ShardOptions,
        options: WorkerOptions,
        *,
        identity: str,
        clock: Clock,
        decode: Decode,
        calls: Callable[[CallSource], CallRunner],
        outputs: OutputTopics | None = None,
        defined: Callable[[SubscriptionDefinition], None] = lambda definition: None,
    ) -> None:
        self.id = options.id
        self.group = worker_group(subscription)
        self.subscription = subscription
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Its lock guards everything. Notified for the thread that does the steps."""
        self._commits = threading.Condition(lock)
        self.machine: WorkerMachine[StoredShard] = WorkerMachine(
            self.id,
            shard,
            make_shard=lambda unit, epoch: StoredShard(unit, epoch, shard, self._joined.process),
            notify=self.changed.notify_all,
        )
        self._options = options
        self._outputs = outputs
        self._backend = backend
        self._clock = clock
        self._runtime: Runtime | None = None
        self._commit_outage = Outage(_log, f"{subscription}: storing the outcomes of calls")
        self.calls = WorkerCalls(
            subscription,
            self.machine,
            options,
            lock=self.changed,
            clock=clock,
            outputs=outputs,
            may_call=self._may_call,
            fail=self.fail,
            lose=self._lose,
        )
        self._reporter = WorkerReporter(
            subscription, self.machine, self.calls, lock=self.changed, unready=self._unready
        )
        driver = self._driver(decode, defined)
        self._io = ShardIO(self.machine, subscription, backend, driver, identity=identity)
        self._calls = calls(self.calls)
        self._to_save, self._committing = set(), set()
        self._progress_due = self._lease_ended = False
        self._stopping = self._departed = self._ended = False
        self._error: BaseException | None = None
        self._claimed = ClaimedId(backend, subscription, options.given_id, self.id)
        self._outage = Outage(_log, f"subscription {subscription}")
        self._threads = [
            threading.Thread(target=self._run, args=(act,), name=f"tailrace {what}", daemon=True)
            for what, act in (
                (f"{subscription} steps", self._work),
                *[(f"{subscription} commits", self._do_commits)] * COMMITS_AT_ONCE,
            )
        ]

    def _driver(
        self, decode: Decode, defined: Callable[[SubscriptionDefinition], None]
    ) -> ShardDriver[StoredShard]:
        return ShardDriver(
            lock=self.changed,
            clock=self._clock,
            await_records=lambda offsets: self._joined.await_records(self.id, offsets),
            post=self._post_all,
            lose=self._lose,
            stored=self._stored,
            not_stored=self._not_stored,
            took=self._reporter.commit_seconds.observe,
            decode=decode,
            find_view=None if self._outputs is None else self._outputs.view,
            effects=self._options.effects,
            defined=defined,
        )

    def install(self, unit: str, epoch: int) -> None:
        """Own a granted shard."""
        _log.info("%s: shard %s was granted to %s", self.subscription, unit, self.id)
        with self.changed:
            self._reporter.granted += 1
            self.machine.install(unit, epoch)

    def drain(self, unit: str, epoch: int) -> None:
        """Call no more of a shard, and post `Drained` once everything of it is stored."""
        _log.info("%s: shard %s is revoked from %s", self.subscription, unit, self.id)
        with self.changed:
            answer = self.machine.drain(unit, epoch)
        if answer is not None:
            self._joined.post(answer)

    def drop(self, unit: str, epoch: int) -> None:
        """Own a shard no longer: nothing more is stored for it."""
        with self.changed:
            self.machine.drop(unit, epoch)

    def departed(self) -> None:
        """Record that the leader knows that the worker has left."""
        with self.changed:
            self._departed = True
            self.machine.interrupt()

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Read these partitions again."""
        with self.changed:
            self.machine.wake(partitions)

    def store_changed(self) -> None:
        """Read the definition again, and end if another worker has claimed the id."""
        try:
            self._io.check_definition()
        except UnknownGroup as error:
            self.fail(error)
        with self.changed:
            self.machine.redefine()
            self._claimed.suspect()
            self.machine.interrupt()

    def save(self) -> None:
        """Have all progress stored."""
        with self.changed:
            self._progress_due, self._to_save = False, set(self.machine.shards.values())
            self._commits.notify()

    def fail(self, error: BaseException) -> None:
        """End the worker with this error."""
        if isinstance(error, UnknownGroup):
            error = UnknownSubscription(self.subscription, self._backend.name)
        with self.changed:
            self._error = self._error or error
            self.machine.interrupt()
            self._commits.notify_all()

    def start(self, join: Callable[[WorkerSession], Runtime]) -> None:
        """Join the group of the subscription's workers."""
        self._runtime = runtime = join(self)
        now_ms = self._clock.now_ms()
        try:
            self._claimed.claim()
            presence.enter(self._backend, self.group, self.id, runtime.process, now_ms)
        except BaseException:
            runtime.leave(self.id)
            raise
        self.machine.enter(runtime.gate, self._calls.wake)
        self._calls.start()
        for thread in self._threads:
            thread.start()
        timeout_s = self._options.timeout.total_seconds()
        runtime.post(Subscribed(self.id, self.group, timeout_s + REVOKE_EXTRA_S))
        if replay_of(self.subscription) is None:  # else there would be ever more names
            reporters_of(self._backend).add(self._reporter)
        _log.info("%s: worker %s joined", self.subscription, self.id)

    def stop(self) -> None:
        """Call no more messages, and have `wait` return. Also in a signal handler."""
        with self.changed:
            self._stopping = True
            self.machine.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `stop`. False after the timeout. Raises the error that ended the worker."""
        with self.changed:
            wait_for(self.changed, lambda: self._stopping or self._error is not None, timeout_s)
            if self._error is not None:
                raise self._error
            return self._stopping

    def leave(self) -> bool:
        """Wait for the calls in flight, up to `drain_timeout`, store everything, and leave.

        False if a call did not end, or something could not be stored: it will be redelivered.
        """
        self.stop()
        with self.changed:
            owned = list(self.machine.shards.values())
            self.changed.wait_for(
                lambda: not self.machine.busy or self._error is not None,
                self._options.drain_timeout.total_seconds(),
            )
            drained = not self.machine.busy and self._error is None
            self._drain_all(owned)
        if self._error is None:
            self._joined.post(Unsubscribed(self.id))
            with self.changed:
                self.changed.wait_for(lambda: self._departed or self._error is not None, LEAVE_S)
        self._depart()
        return drained and self._departed and all(each.stored for each in owned)

    def _drain_all(self, shards: list[StoredShard]) -> None:
        """Store everything, for at most `LEAVE_S`: one that leaves has no such time. Locked."""
        for owned in shards:
            self.machine.drain(owned.name, owned.epoch)
        self._to_save = set(shards)
        self._commits.notify()

        def stored() -> bool:
            # While a call is in flight its shard has no final commit: then the others are stored.
            idle = self.machine.busy and not (self._to_save or self._committing)
            return self._error is not None or all(
                each.removed or each.stored or (idle and not each.machine.commit_due)
                for each in shards
            )

        self.changed.wait_for(stored, LEAVE_S)

    def _depart(self) -> None:
        """End the worker, in any state."""
        runtime = self._joined
        if not self._departed:
            runtime.post(Died(self.id))
        with self.changed:
            self._ended = True
            for owned in list(self.machine.shards.values()):
                self.machine.drop(owned.name, owned.epoch)
            self.machine.interrupt()
            self._commits.notify_all()
        self._calls.stop()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LEAVE_S)
        with contextlib.suppress(BackendUnavailable, Conflict):
            presence.leave(self._backend, self.group, self.id)
            self._claimed.release()
        runtime.leave(self.id)
        reporters_of(self._backend).retire(self._reporter)
        _log.info("%s: worker %s left", self.subscription, self.id)

    def _unready(self) -> str | None:
        if self._stopping or self._error is not None:
            return f"the worker of {self.subscription} ends"
        if self._joined.until(self.id) <= self._clock.monotonic():
            return f"the worker of {self.subscription} has not joined its group"
        return None

    def _may_call(self) -> bool:
        """True if handlers may be called now. With the lock."""
        before = self._lease_ended
        self._lease_ended = self._joined.until(self.id) <= self._clock.monotonic()
        if self._lease_ended and not before:
            self.machine.interrupt()  # the steps' thread may sleep already, for longer
        return self._error is None and not self._lease_ended

    def _run(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            if not isinstance(error, HubClosed):
                _log.exception("%s: worker %s failed", self.subscription, self.id)
            self.fail(error)

    def _lose(self, owned: StoredShard) -> None:
        """Give a shard up, which another worker owns or whose last commit is unknown."""
        _log.warning("%s: shard %s is lost by %s", self.subscription, owned.name, self.id)
        self._reporter.lost += 1
        self._post_all(self.machine.lost(owned))

    def _stored(self, owned: StoredShard, commit: ShardCommit) -> None:
        self._commit_outage.worked()
        self._reporter.stored(commit)

    def _not_stored(self, error: Error) -> None:
        self._commit_outage.failed(error)
        self._reporter.not_committed()

    def _abandon(self) -> None:
        self._joined.post(Died(self.id))
        self._departed = True
        presence.leave(self._backend, self.group, self.id)

    def _have_progress_saved(self) -> None:
        self._joined.progress_due(self.id)

    def _post_all(self, events: list[Event]) -> None:
        for event in events:
            self._joined.post(event)

    @property
    def _joined(self) -> Runtime:
        assert self._runtime is not None, "a session is started before it is used"
        return self._runtime
