"""The threads of a worker: one does the steps of its shards, the others store their commits."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.clock import Clock
from tailrace.errors import (
    BackendUnavailable,
    CorruptBatch,
    Error,
    Fenced,
    HubClosed,
    UnknownGroup,
    UnknownTopic,
)
from tailrace.group.outage import Outage
from tailrace.subscription.worker.calls import CallRunner
from tailrace.subscription.worker.claimed_id import ClaimedId
from tailrace.subscription.worker.machine import WorkerMachine
from tailrace.subscription.worker.options import WorkerOptions
from tailrace.subscription.worker.outputs import OutputTopics
from tailrace.subscription.worker.shard_io import Effect, ShardIO, StoredShard

COMMITS_AT_ONCE: Final = 8
"""The number of threads that store commits."""

_log: Final = logging.getLogger("tailrace.subscription")

_IDLE_S: Final = 60.0
_PAUSED_S: Final = 0.1


class WorkerThreads(ABC):
    """What the threads of a session do until it ends. The session sets the attributes."""

    subscription: str
    machine: WorkerMachine[StoredShard]
    changed: threading.Condition
    _commits: threading.Condition
    _options: WorkerOptions
    _outputs: OutputTopics | None
    _clock: Clock
    _io: ShardIO[StoredShard]
    _calls: CallRunner
    _claimed: ClaimedId
    _outage: Outage
    _to_save: set[StoredShard]
    """The shards whose progress is to be stored, also if no commit is due."""
    _committing: set[StoredShard]
    """The shards whose commits are being stored."""
    _progress_due: bool
    _lease_ended: bool
    _ended: bool
    _error: BaseException | None

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End the worker with this error."""

    @abstractmethod
    def _lose(self, owned: StoredShard) -> None:
        """Give a shard up. With the lock."""

    @abstractmethod
    def _abandon(self) -> None:
        """Leave the group at once: everything that the worker owns is fenced."""

    @abstractmethod
    def _have_progress_saved(self) -> None:
        """Have `save` called within the progress interval."""

    @property
    def _over(self) -> bool:
        return self._ended or self._error is not None

    def _work(self) -> None:
        """Do steps until the worker ends, then end the threads that call handlers."""
        try:
            self._do_steps()
        finally:
            self._calls.stop()
            with self.changed:
                self.machine.leave()

    def _do_steps(self) -> None:
        """Read for the shards, and have their handlers called and their commits stored."""
        machine, now = self.machine, self._clock.monotonic
        while not self._over:
            with self.changed:
                seen, shards = machine.version, list(machine.shards.values())
            worked = False
            self._check_id()
            for owned in shards:
                with self.changed:
                    work = self._io.next_work(owned, now())
                if work is not None:
                    worked = True
                    self._apply(owned, work)
            with self.changed:
                can_call = machine.can_call
            if can_call:
                self._calls.wake()
            again_at = self._calls.expire()
            with self.changed:
                if machine.to_commit(now()):
                    self._commits.notify()
                elif not self._progress_due and machine.unsaved(now()):
                    self._progress_due = True
                    self._have_progress_saved()
                if not worked:
                    self._sleep(seen, again_at)

    def _check_id(self) -> None:
        """End the worker with `Fenced` if a newer one has claimed its id, and let its shards be
        granted to others."""
        try:
            self._claimed.check()
        except Fenced as error:
            self.fail(error)
            self._abandon()
        except BackendUnavailable as error:
            self._outage.failed(error)

    def _sleep(self, seen: int, again_at: float) -> None:
        """Wait for an event, or until something is due. With the lock."""
        machine, now = self.machine, self._clock.monotonic()
        # A call that begins meanwhile takes too long after the timeout, not before.
        times = [now + self._options.timeout.total_seconds(), again_at, machine.due_at(now)]
        if self._lease_ended and machine.shards:
            times.append(now + _PAUSED_S)
        self.changed.wait_for(
            lambda: machine.version != seen or self._over, max(0.0, min(times) - now)
        )

    def _do_commits(self) -> None:
        """Store what is ready, shard by shard.

        Several threads do this: commits that wait at the same time share a write and a sync.
        """
        while not self._over:
            with self.changed:
                owned = self._next_commit()
                if owned is None:
                    self.changed.notify_all()
                    if not self._over:
                        self._commits.wait(_IDLE_S)
                    continue
                self._committing.add(owned)
                self._commits.notify()
            try:
                self._apply(owned, partial(self._io.commit, owned))
            finally:
                with self.changed:
                    self._committing.remove(owned)

    def _next_commit(self) -> StoredShard | None:
        """Return a shard to commit now; None if there is none. With the lock."""
        machine, now = self.machine, self._clock.monotonic()
        ready = machine.to_commit(now)
        if self._to_save:
            ready += [owned for owned in machine.unsaved(now) if owned in self._to_save]
        for owned in ready:
            if owned not in self._committing:
                self._to_save.discard(owned)
                return owned
        self._to_save &= self._committing  # the others have nothing to store
        return None

    def _apply(self, owned: StoredShard, work: Callable[[], Effect]) -> None:
        """Do work for a shard, and apply its effect. If it fails, the shard is lost or retries."""
        try:
            effect = work()
        except UnknownGroup as error:
            self.fail(error)
            return
        except (Fenced, UnknownTopic) as error:
            name = self.subscription
            _log.warning("%s: a write for shard %s is refused: %s", name, owned.name, error)
            if isinstance(error, UnknownTopic) and self._outputs is not None:
                self._outputs.forget()
            self._claimed.suspect()
            with self.changed:
                self._lose(owned)
            return
        except HubClosed:
            raise
        except Error as error:
            # A shard with a damaged partition waits for its repair, and the others continue.
            if not (error.retryable or isinstance(error, BackendUnavailable | CorruptBatch)):
                raise
            self._outage.failed(error)
            with self.changed:
                self.machine.failed(owned, self._clock.monotonic())
            return
        with self.changed:
            if not owned.removed:
                effect()
        self._outage.worked()
