"""The machine of a task: which units of a source this task reads, and which it gives away.

It follows the messages of the sync topic and the events of the heartbeat topic, each in the order
of its topic. What it decides may rest on old messages: the fence of a unit, raised in the present
epoch, decides who owns it. `docs/design/0019-many-tasks-read-one-source.md` has the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from tailrace.source.task.actions import (
    CheckOwned,
    Claim,
    End,
    Publish,
    ReadTable,
    Rejoin,
    Release,
    RemoveUnneeded,
    TaskAction,
    TaskView,
)
from tailrace.source.task.balance import surplus
from tailrace.source.task.ending import is_quiet, is_read
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
from tailrace.source.task.leading import Leading, listed, update_epoch
from tailrace.source.task.messages import MessageType, SyncMessage, TaskState
from tailrace.source.task.other_tasks import OtherTasks
from tailrace.source.task.published import Published
from tailrace.source.unit_status import UnitStatus

CHECK_END_S: Final = 0.5
"""How often a task reads the table again to find whether everything was read."""


class TaskMachine:
    """One task of a source. Pure: see `tailrace.machine`.

    `ends`: the task ends when all tasks have read everything within their `Until`.

    `units` are the units that the task owns, `share` those that it gives away, each with the task
    that is to take it. `claiming` are units whose fence is not raised yet; True if the others count
    them as this task's already.
    """

    def __init__(self, task: str, *, ends: bool) -> None:
        self.task = task
        self.epoch: Epoch | None = None
        self.others = OtherTasks(task)
        self.units: dict[str, UnitStatus] = {}
        self.claiming: dict[str, bool] = {}
        self.share: dict[str, str] = {}
        self.ended = False
        self._ends = ends
        self._generation = 0
        self._known = False
        self._published = Published()
        self._gone: frozenset[str] = frozenset()
        self._leading: Leading | None = None
        self._reads_table = False
        self._check_end_at: float | None = None
        self._actions: list[TaskAction] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Heard: self._heard,
            MembersRebalanced: self._rebalanced,
            LeaderElected: self._elected,
            LeaderDeposed: self._deposed,
            MembersFound: self._members_found,
            MembershipLost: self._membership_lost,
            TableRead: self._table_read,
            EpochStored: self._epoch_stored,
            Claimed: self._claimed,
            ClaimRefused: self._claim_refused,
            StillOwned: self._still_owned,
            UnitsProgressed: self._progressed,
            TaskTick: self._tick,
        }

    @property
    def is_leader(self) -> bool:
        """True if this is the leader task."""
        return self._leading is not None

    @property
    def members(self) -> frozenset[str]:
        """The tasks of the present epoch."""
        return self.others.members

    @property
    def rebalancing(self) -> bool:
        """True from a rebalance event until its epoch: nobody shares or takes units."""
        return self.epoch is None or self._generation > self.epoch.generation

    def handle(self, event: TaskEvent, now: float) -> list[TaskAction]:
        """Handle an event; return the actions, in this order."""
        self._actions = []
        if not self.ended:
            for unit in self._gone:
                self.units.pop(unit, None)
            self._gone = frozenset()
            self._handlers[type(event)](event, now)
        if not self.ended and self.epoch is not None:
            own = self._own_view() if self.rebalancing else self._shared()
            if self._published.is_due(own, now):
                self._publish(MessageType.REGULAR, self.epoch.generation, now)
            self._check_end(now)
        return self._actions

    def deadline(self) -> float | None:
        """Return the time at which a `TaskTick` is due; None if the machine waits for nothing."""
        if self.ended:
            return None
        leading = None if self._leading is None else self._leading.deadline()
        due = (leading, self._check_end_at, self._published.due_at, 0.0 if self._gone else None)
        return min((at for at in due if at is not None), default=None)

    def validate(self) -> None:
        """Raise `AssertionError`, which names the violated invariant."""
        own, claiming, shared = self.units.keys(), self.claiming.keys(), self.share.keys()
        assert not own & claiming, f"{self.task} owns and claims {own & claiming}"
        assert not own & shared, f"{self.task} owns and shares {own & shared}"
        assert not claiming & shared, f"{self.task} claims and shares {claiming & shared}"
        assert self.epoch is not None or not own, f"{self.task} owns {own} without an epoch"
        assert self.task not in self.share.values(), f"{self.task} shares with itself"

    # The topics.

    def _heard(self, event: Heard, now: float) -> None:
        message = event.message
        if self._leading is not None and self._leading.heard(now) and self.epoch is not None:
            self._act(update_epoch(self.epoch, self._all_views()))
        if self._ends and self._check_end_at is not None:
            self._check_end_at = min(self._check_end_at, now)
        match message.type:
            case MessageType.NEW_EPOCH:
                self._adopt(message)
            case MessageType.UPDATE_EPOCH:
                if self.epoch is None or message.generation > self.epoch.generation:
                    self._adopt(message)
                elif self._is_present(message):
                    for state in message.connector_state:
                        self._update_view(state)
            case _:
                self._heard_from_one(message)

    def _heard_from_one(self, message: SyncMessage) -> None:
        for state in message.connector_state:
            if self._is_present(message):
                self._update_view(state)
            if message.type is MessageType.REBALANCE_ANSWER and self._leading is not None:
                answer = TaskView.of(state)
                self._act(*self._leading.answered(state.task_id, message.generation, answer))

    def _is_present(self, message: SyncMessage) -> bool:
        """True if a message is of the present epoch, and its sender a member."""
        epoch = self.epoch
        is_member = message.task_id in self.members
        return epoch is not None and message.sync_epoch == epoch.id and is_member

    def _update_view(self, state: TaskState) -> None:
        """Learn the state of another task, unless a later one is known."""
        learned = self.others.update(state)
        if learned is None:
            return
        task, view, ended = learned
        taken = view.data.keys() | view.share.keys()
        for unit in [u for u, to in self.share.items() if to == task and u in taken]:
            del self.share[unit]
        if ended:
            self._act(RemoveUnneeded())
        if disputed := view.data.keys() & self.units.keys():
            self._act(CheckOwned(tuple(sorted(disputed))))

    def _rebalanced(self, event: MembersRebalanced, now: float) -> None:
        generation, members = event.event.generation, event.event.members
        if generation <= self._generation:
            return
        self._generation = generation
        if event.event.leader != self.task:
            self._leading = None  # deposed: only a newer leader can have written this
        if self.task in members:
            self._known = True
            self._publish(MessageType.REBALANCE_ANSWER, generation, now)
        elif self._known:
            self._rejoin()

    def _adopt(self, message: SyncMessage) -> None:
        """Begin an epoch, unless a newer one is known."""
        if self.epoch is not None and message.generation <= self.epoch.generation:
            return
        members = frozenset(state.task_id for state in message.connector_state)
        if self.task not in members:
            if self._known:
                self._rejoin()
            return
        self._known = True
        self.epoch = Epoch(message.sync_epoch, message.generation, message.epoch_number)
        self._generation = max(self._generation, message.generation)
        self.others.begin(message.connector_state)
        self.share = {unit: task for unit, task in self.share.items() if task in members}
        self.claiming = {unit: True for unit, is_listed in self.claiming.items() if is_listed}
        self._claim(self.claiming)
        self._act(RemoveUnneeded())
        self._published.again()

    # Leading.

    def _elected(self, event: LeaderElected, now: float) -> None:
        self._leading = Leading(self.task)

    def _deposed(self, event: LeaderDeposed, now: float) -> None:
        self._leading = None

    def _members_found(self, event: MembersFound, now: float) -> None:
        leading, members = self._leading, event.members
        if leading is None or self.task not in members or leading.is_about(members):
            return
        if members == self.members and not self.rebalancing and not leading.rebalancing:
            return
        newest = 0 if self.epoch is None else self.epoch.generation
        self._act(*leading.begin(members, max(self._generation, newest) + 1, now))

    def _membership_lost(self, event: MembershipLost, now: float) -> None:
        self._rejoin()

    def _table_read(self, event: TableRead, now: float) -> None:
        self._reads_table = False
        if self._leading is not None:
            if self._leading.rebalancing:
                self._act(*self._leading.table_read(event.units))
            elif not self.rebalancing:
                owned = listed(self._all_views(), self.members) | self.claiming.keys()
                self._claim_listed(sorted(self._leading.audited(event.units, owned)))
        checks = self._check_end_at is not None and self._is_quiet()
        if checks and is_read(self._all_views(), event.startable):
            self.ended = True
            self._act(End())

    def _epoch_stored(self, event: EpochStored, now: float) -> None:
        leading = self._leading
        placed = None if leading is None else leading.epoch_stored(event.epoch)
        if leading is None or placed is None:
            return
        for unit, task in placed.items():
            if unit not in self.units and unit not in self.claiming:
                if task == self.task:
                    self.share.pop(unit, None)
                    self.claiming[unit] = True
                else:
                    self.share[unit] = task
        self._published.sequence += 1
        self._act(leading.new_epoch(event.epoch, self._own_view()))

    def _tick(self, event: TaskTick, now: float) -> None:
        if self._leading is not None:
            self._act(*self._leading.tick(now))

    # Units.

    def _claimed(self, event: Claimed, now: float) -> None:
        for unit, status in event.units.items():
            if self.claiming.pop(unit, None) is False:
                self._published.hurry()
            self.share.pop(unit, None)
            self.units[unit] = status
            if self.others.listed(unit):
                self._published.again()  # the other owner looks at the fence when it hears this
        for unit in event.gone:
            # Told once, so that the task that gave it away forgets it.
            self.claiming.pop(unit, None)
            self.units[unit] = UnitStatus.FINISHED
            self._published.hurry()
        self._gone = event.gone

    def _claim_refused(self, event: ClaimRefused, now: float) -> None:
        """Wait for the next epoch: units that the others count as this task's are claimed then."""
        for unit in event.units:
            if self.claiming.get(unit) is False:
                del self.claiming[unit]

    def _still_owned(self, event: StillOwned, now: float) -> None:
        """Tell the other owners of units once more, now that the fences are checked."""
        if event.units:
            self._published.again()

    def _progressed(self, event: UnitsProgressed, now: float) -> None:
        for unit, status in event.statuses.items():
            if unit in self.units:
                self.units[unit] = status
        for unit in event.removed | event.lost:
            self.units.pop(unit, None)
        if event.reported:
            owned = listed(self.others.views, self.members)
            self._claim_listed(sorted(event.reported - owned - self.share.keys()))

    def _claim_listed(self, units: Iterable[str]) -> None:
        """Count units as own ones, and claim those that are not to be given away at once."""
        new = [unit for unit in units if unit not in self.units and unit not in self.claiming]
        self.claiming.update(dict.fromkeys(new, True))
        if self.epoch is None or self.rebalancing:
            given: dict[str, str] = {}
        else:
            given = surplus(self.task, self._all_views())
        for unit in new:
            if unit in given:
                del self.claiming[unit]
                self.share[unit] = given[unit]
        self._claim([unit for unit in new if unit not in given])

    def _claim(self, units: Iterable[str]) -> None:
        claimed = tuple(units)
        if claimed and self.epoch is not None:
            self._act(Claim(claimed, self.epoch.number))

    def _take_shares(self) -> None:
        """Claim the units that others give to this task."""
        taken: list[str] = []
        for unit in self.others.offers():
            if not (unit in self.units or unit in self.claiming or unit in self.share):
                self.claiming[unit] = False
                taken.append(unit)
        self._claim(sorted(taken))

    def _shared(self) -> TaskView:
        """Take units, and give them away if this task has more than its part. Return its state."""
        self._take_shares()
        own = self._own_view()
        given = {
            unit: target
            for unit, target in surplus(self.task, {**self.others.views, self.task: own}).items()
            if unit in self.units
        }
        if not given:
            return own
        for unit in given:
            del self.units[unit]
        self.share.update(given)
        self._act(Release(tuple(given)))
        return self._own_view()

    # The state that others see.

    def _own_view(self) -> TaskView:
        data = dict(self.units)
        for unit, is_listed in self.claiming.items():
            if is_listed:
                data[unit] = UnitStatus.READING
        return TaskView(self._published.sequence, data, dict(self.share))

    def _all_views(self) -> dict[str, TaskView]:
        return {**self.others.views, self.task: self._own_view()}

    def _publish(self, kind: MessageType, generation: int, now: float) -> None:
        self._published.sequence += 1
        own = self._own_view()
        epoch = self.epoch or Epoch("", generation, 0)
        self._act(Publish(kind, generation, epoch.id, epoch.number, {self.task: own}))
        self._published.told(own, now, len(own.data) + self.others.units)

    def _check_end(self, now: float) -> None:
        """Find whether all tasks have read everything."""
        if not self._ends or not self._is_quiet():
            self._check_end_at = None
        elif self._check_end_at is None or now >= self._check_end_at:
            self._check_end_at = now + CHECK_END_S
            self._read_table()

    def _is_quiet(self) -> bool:
        """True if no task reads, and no unit moves."""
        return not self.rebalancing and not self.claiming and is_quiet(self._all_views())

    def _read_table(self) -> None:
        if not self._reads_table:
            self._reads_table = True
            self._act(ReadTable())

    def _rejoin(self) -> None:
        self.ended = True
        self._act(Rejoin())

    def _act(self, *actions: TaskAction) -> None:
        self._actions += actions
