"""The driver of a `TaskMachine`: it reads the topics, carries actions out, and reads units.

It has no threads and does not wait, so that a process and the simulator drive the same code. Every
step calls the backend for one purpose; an error of the backend leaves the rest for the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, Protocol

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, Fence
from tailrace.clock import Clock, utc_time
from tailrace.errors import Conflict, Fenced
from tailrace.group.store.definition import unit_fence
from tailrace.source.changes import Changes
from tailrace.source.names import LEADER, task_group
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import StoredSplits, read_splits, table_of, unit_of
from tailrace.source.task.actions import (
    Announce,
    CheckOwned,
    Claim,
    End,
    Publish,
    ReadTable,
    Rejoin,
    Release,
    RemoveMembers,
    RemoveUnneeded,
    StoreEpoch,
    TaskAction,
    TaskView,
)
from tailrace.source.task.events import (
    Claimed,
    ClaimRefused,
    Epoch,
    EpochStored,
    Heard,
    LeaderDeposed,
    LeaderElected,
    MembersFound,
    MembershipLost,
    MembersRebalanced,
    StillOwned,
    TableRead,
    TaskEvent,
    TaskTick,
    UnitsProgressed,
)
from tailrace.source.task.machine import TaskMachine
from tailrace.source.task.membership import Membership
from tailrace.source.task.messages import (
    MessageParts,
    MessageType,
    OwnedUnits,
    SharedUnits,
    SyncMessage,
    TaskState,
    decode_event,
    encode,
    encode_event,
)
from tailrace.source.task.topics import (
    TaskTopic,
    open_heartbeat,
    open_sync,
    store_snapshot,
)
from tailrace.source.unit_status import UnitStatus

MEMBERS_S: Final = 0.25
"""How often the leader task looks for members that have died."""

_SNAPSHOTS: Final = (MessageType.NEW_EPOCH, MessageType.UPDATE_EPOCH)


class UnitReading(Protocol):
    """The reading of units, as a task drives it: see `SplitReading`."""

    @property
    def units(self) -> Mapping[str, UnitStatus]:
        """The owned units, with what is left to do in each."""

    @property
    def changes(self) -> Changes:
        """What has changed since `take_changes`."""

    def take_changes(self) -> Changes:
        """Return what has changed since the last call."""

    def claim(self, units: Iterable[str], epoch: Fence) -> None:
        """Take units over."""

    def release(self, units: Iterable[str]) -> None:
        """Read units no longer."""

    def check_waiting(self) -> None:
        """Have the next step look whether splits that wait may start."""

    def learn(self, stored: StoredSplits) -> None:
        """Learn from the whole table which splits are finished that own ones wait for."""

    def check_owned(self, units: Iterable[str]) -> None:
        """Release those of these units that have a newer owner."""

    def sweep(self) -> None:
        """Have the next step look for finished splits that nothing needs any more."""

    def store_first_splits(self, fence: Fence) -> None:
        """Store the first splits of the source, unless they are stored."""

    def step(self) -> bool:
        """Read and store one batch; False if there is none now."""


class StoredEpoch(msgspec.Struct, frozen=True):
    """The value of the store entry of an epoch."""

    id: str
    generation: int
    members: tuple[str, ...]
    leader: str


class TaskDriver:
    """One task of a source, from its first look at the topics to its end. For one thread.

    `make_id` returns a new id for an epoch.
    """

    def __init__(
        self,
        backend: Backend,
        source: str,
        machine: TaskMachine,
        reading: UnitReading,
        membership: Membership,
        *,
        clock: Clock,
        bytes_max: int,
        make_id: Callable[[], str],
    ) -> None:
        self.machine = machine
        self.source = source
        self.rejoins = self.done = self.paused = False
        self.taken_over: Fenced | None = None
        """Set when a run has taken the whole source over, which shares it with no task."""
        self._backend = backend
        self._reading = reading
        self._membership = membership
        self._clock = clock
        self._bytes_max = bytes_max
        self._make_id = make_id
        now_ms = clock.now_ms()
        self.sync: TaskTopic = open_sync(backend, source, now_ms)
        self.heartbeat: TaskTopic = open_heartbeat(backend, source, now_ms)
        self._parts = MessageParts()
        self._actions: deque[TaskAction] = deque()
        self._leader: Fence | None = None
        self._hear_until: tuple[int, int] | None = None
        self._is_new_leader = False
        self._covered = 0
        """The offset of the sync topic up to which the last snapshot has all states."""
        self._members_at = 0.0
        self._entry_due = self._is_reading = True
        self._heard = False

    def lead(self, epoch: int) -> None:
        """Lead the source from now on, with the fence of this grant."""
        self._leader = Fence(unit_fence(task_group(self.source), LEADER), epoch)
        self._is_new_leader, self._hear_until = True, None

    def follow(self) -> None:
        """Lead no longer."""
        if self._leader is not None:
            self._leader = self._hear_until = None
            self._is_new_leader = False
            self._handle(LeaderDeposed())

    def look_for_members(self) -> None:
        """Have the next step look for the live members, if this task leads, and for itself."""
        self._members_at = 0.0
        self._entry_due = True

    def step(self) -> bool:
        """Perform one action, or hear, or read one batch. True if there may be more to do at once.

        Raises the errors of the backend and of the reader. Call it again after a retryable one.
        """
        if self._actions:
            # Removed once it is done: after an error it is done again, which changes nothing.
            self._perform(self._actions[0])
            self._actions.popleft()
            return True
        self._is_reading = not self._is_reading
        if self._is_reading:
            return self._read() or self._heard or bool(self._actions)
        self._heard = self.hear()
        self._look()
        return True

    def _look(self) -> None:
        """Do what is due by the clock."""
        now = self._clock.monotonic()
        due = self.machine.deadline()
        if due is not None and now >= due:
            self._handle(TaskTick())
        if self._entry_due:
            if not self._membership.is_entered():
                self._handle(MembershipLost())
            self._entry_due = False
        if self._leader is not None and now >= self._members_at:
            self._members_at = now + MEMBERS_S
            self._handle(MembersFound(self._membership.live_members()))

    def hear(self) -> bool:
        """Read both topics; False if there was nothing new."""
        if self._is_new_leader:
            # After the grant, so that nothing is missed that an earlier leader has written.
            self._hear_until = self.sync.end(), self.heartbeat.end()
            self._is_new_leader = False
        heard = False
        for value in self.heartbeat.read():
            heard = True
            self._handle(MembersRebalanced(decode_event(value)))
        for value in self.sync.read():
            heard = True
            message = self._parts.add(value)
            if message is not None:
                self._handle(Heard(message))
        if heard:
            self._reading.check_waiting()
        if self._hear_until is not None:
            sync, heartbeat = self._hear_until
            if self.sync.next_offset >= sync and self.heartbeat.next_offset >= heartbeat:
                self._hear_until = None
                self._members_at = 0.0
                self._handle(LeaderElected())
        return heard

    def _read(self) -> bool:
        stored = False
        try:
            stored = not self.paused and self._reading.step()
        except Fenced:
            if not self._reading.changes.lost:
                raise
        finally:
            self._tell_progress()
        return stored

    def _tell_progress(self) -> None:
        if told := self._reading.take_changes():
            sets = map(frozenset, (told.reported, told.removed, told.lost))
            self._handle(UnitsProgressed(told.statuses, *sets))

    def _handle(self, event: TaskEvent) -> None:
        actions = self.machine.handle(event, self._clock.monotonic())
        if any(isinstance(each, Publish) and each.type in _SNAPSHOTS for each in actions):
            self._covered = self.sync.next_offset
        self._actions += actions

    # Actions.

    def _perform(self, action: TaskAction) -> None:
        try:
            match action:
                case Publish():
                    self._publish(action)
                case Announce(event):
                    self.heartbeat.append([encode_event(event)], self._leader_fence(), self._now())
                case RemoveMembers(tasks):
                    self._membership.remove(tasks)
                    self._members_at = 0.0
                case ReadTable():
                    self._read_table()
                case StoreEpoch():
                    self._store_epoch(action)
                case Claim(units, number):
                    self._claim(units, number)
                case Release(units):
                    self._reading.release(units)
                case CheckOwned(units):
                    self._reading.check_owned(units)
                    self._tell_progress()
                    self._handle(StillOwned(frozenset(units) & self._reading.units.keys()))
                case RemoveUnneeded():
                    self._reading.sweep()
                case Rejoin():
                    self._reading.release(self._reading.units)
                    self.rejoins = True
                case End():
                    self.done = True
        except _NotLeading:
            pass
        except Fenced:
            if not isinstance(action, Announce | Publish | StoreEpoch):
                raise
            self.follow()

    def _publish(self, action: Publish) -> None:
        self._write(action)
        if action.type in _SNAPSHOTS:
            store_snapshot(self._backend, self.source, self._covered)

    def _write(self, action: Publish) -> None:
        now_ms = self._now()
        now = utc_time(now_ms)
        message = SyncMessage(
            sync_epoch=action.epoch,
            task_id=self.machine.task,
            message_timestamp=now,
            connector_state=tuple(
                _state(task, view, now) for task, view in sorted(action.states.items())
            ),
            type=action.type,
            generation=action.generation,
            epoch_number=action.epoch_number,
            sequence=action.states[self.machine.task].sequence,
        )
        fence = self._leader_fence() if action.type in _SNAPSHOTS else None
        self.sync.append(encode(message, self._bytes_max), fence, now_ms)

    def _read_table(self) -> None:
        stored = read_splits(self._backend, self.source)
        if not stored.begun and self._leader is not None:
            try:
                self._reading.store_first_splits(self._leader)
            except Fenced:
                self.follow()
            stored = read_splits(self._backend, self.source)
        # Before the machine finds whether everything was read.
        self._reading.learn(stored)
        self._tell_progress()
        graph = SplitGraph.of(stored)
        unfinished = graph.unfinished_units()
        startable = frozenset(
            unit_of(state.split) for each, state in graph.states.items() if graph.may_start(each)
        )
        units = {unit: unit not in unfinished for unit in graph.units()}
        self._handle(TableRead(units, startable))

    def _store_epoch(self, action: StoreEpoch) -> None:
        leader = self._leader_fence()
        id = self._make_id()
        entry = StoredEpoch(id, action.generation, action.members, self.machine.task)
        change = Change(
            expect={FENCES + leader.name: leader.epoch},
            writes={FENCES + table_of(self.source): msgspec.json.encode(entry)},
        )
        try:
            number = self._backend.store.commit(change)
        except Conflict as newer:
            raise Fenced(*leader, newer.version) from newer
        self._handle(EpochStored(Epoch(id, action.generation, number)))

    def _claim(self, units: tuple[str, ...], number: int) -> None:
        try:
            self._reading.claim(units, Fence(table_of(self.source), number))
        except Fenced as refused:
            entry = self._backend.store.get(FENCES + table_of(self.source))
            if entry is not None and not entry.value:
                self.taken_over = refused
            self._handle(ClaimRefused(frozenset(units)))
            return
        owned = self._reading.units
        claimed = {unit: owned[unit] for unit in units if unit in owned}
        self._handle(Claimed(claimed, frozenset(units) - claimed.keys()))

    def _leader_fence(self) -> Fence:
        if self._leader is None:
            raise _NotLeading
        return self._leader

    def _now(self) -> int:
        return self._clock.now_ms()


class _NotLeading(Exception):
    """An action of a leader that has been deposed since it was decided."""


def _state(task: str, view: TaskView, now: datetime) -> TaskState:
    return TaskState(
        task_id=task,
        state_timestamp=now,
        sequence=view.sequence,
        data=OwnedUnits(dict(view.data)),
        share=SharedUnits(dict(view.share)),
    )
