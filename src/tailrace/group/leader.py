"""The leader of a group: which borrowers there are, and who has which unit.

What stands is in the store: a grant is committed, under the leader's own term and everything that
it was decided from, before the borrower hears of it. So the leader may forget, be wrong about who
lives, or be followed by another at any time: no two borrowers can write for one unit.

Of the grants that it found when it was elected it takes over, as they are, those of borrowers that
present them before `adopt_until`. Until then it takes nothing from those that have not come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tailrace.group import reasons
from tailrace.group.actions import Action, NewGrant, Record, Send
from tailrace.group.assignments import Assignments
from tailrace.group.events import (
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    Tick,
    UnitsRead,
)
from tailrace.group.leader_events import Heard, LeaderEvent, ProcessLost, RosterRead
from tailrace.group.membership import Membership
from tailrace.group.messages import (
    Disconnect,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Revoked,
    RevokeFinished,
    ToBorrower,
    ToLeader,
    UpdateProgress,
)
from tailrace.group.planner import plan
from tailrace.group.stored import Stored
from tailrace.group.times import Times
from tailrace.group.unit import StoredGrant


class Leader:
    """One group's leader, for one term. See `tailrace.machine.Machine`.

    `deposed` is set when it learns that another leads. `adopt_until` may be brought forward by
    whoever learns when the leader before it stopped.
    """

    def __init__(
        self,
        group: str,
        term: int,
        times: Times,
        grants: Sequence[StoredGrant],
        adopt_until: float,
        now: float,
    ) -> None:
        self.group = group
        self.term = term
        self.deposed = False
        self.adopt_until = adopt_until
        self.marks: dict[str, tuple[int, int]] = {}
        """How far units are by what borrowers said: epoch and mark, only ever higher. For people to
        see; nothing is decided by it."""
        self.members = Membership()
        """The borrowers that it counts on."""
        self._joined = False
        self._times = times
        self._assignments = Assignments(group, term, times)
        self._stored = Stored(group, term, times, grants, now)
        self._changed = True
        self.members.adopt(grants, 2 * times.free_s)
        for grant in grants:
            self._assignments.adopt(grant.unit, grant.borrower, grant.epoch)
            if grant.fenced:
                self._assignments.release(grant.unit, "fenced", 2 * times.free_s, now)

    @property
    def settled(self) -> bool:
        """Whether all that it decided is done, as far as that is up to the store."""
        return self._stored.certain and not self._changed

    def trusts(self, process: str) -> bool:
        """Whether no borrower of a process may be handing out what is no longer its own."""
        distrusted = self._assignments.distrusted
        return all(self.members[name].process != process for name in distrusted)

    def owner(self, unit: str) -> tuple[str, int] | None:
        """The borrower that has been granted a unit, and the epoch."""
        assignment = self._assignments.get(unit)
        return None if assignment is None else (assignment.borrower, assignment.epoch)

    def handle(self, event: LeaderEvent, now: float) -> list[Action]:
        """Take in an event. Once deposed, it answers nothing."""
        if self.deposed:
            return []
        match event:
            case Heard(process, message):
                return self._heard(process, message, now)
            case ProcessLost(process, why):
                return self._lose(self.members.of(process), why)
            case RosterRead():
                return self._roster(event)
            case UnitsRead(_, basis):
                self._changed = True
                self._stored.take_units(basis, now)
            case GrantsCommitted():
                return self._committed(event, now)
            case GrantsRefused(_, number, deposed):
                if self._stored.settle(number) is not None:
                    self._changed, self.deposed = True, deposed
                    self._stored.doubt_units(now)
                    self._stored.doubt_grants(now)
            case GrantsUnknown(_, number):
                if self._stored.settle(number) is not None:
                    self._changed = True
                    self._stored.doubt_grants(now + self._times.resend_s)
            case GrantsRead():
                self._take_grants(event, now)
            case Tick():
                return self._tick(now)
        return []

    def deadline(self) -> float | None:
        """When something is to be done, said again or given up."""
        if self.deposed:
            return None
        if self._changed and self._stored.certain:
            return float("-inf")
        moments = [self._stored.deadline()]
        if self.members.unheard():
            moments.append(self.adopt_until)
        resend_at = self._assignments.deadline()
        return min(moments) if resend_at is None else min(resend_at, *moments)

    def validate(self) -> None:
        """Every invariant of a leader."""
        self._assignments.validate()
        for unit, assignment in self._assignments.items():
            assert assignment.borrower in self.members, f"{unit} is assigned to nobody"
            stored = self._stored.epochs.get(unit) == assignment.epoch
            assert stored or assignment.leaving, f"{unit} is not as it is stored"
        if self._stored.pending is not None:
            granted = self._stored.pending.granted
            twice = [grant.unit for grant in granted if grant.unit in self._assignments]
            assert not twice, f"{twice} granted to two"

    def _heard(self, process: str, message: ToLeader, now: float) -> list[Action]:
        name = message.borrower
        if isinstance(message, LeaderWanted):
            return self._take_in(process, message, now)
        if name not in self.members:
            if isinstance(message, Disconnect):
                return []
            return [Send(process, Invalidate(self.group, name, self.term))]
        match message:
            case Disconnect():
                return self._lose([name], reasons.LEFT)
            case UpdateProgress():
                return self._progress(message, now)
            case RevokeFinished(unit=unit, epoch=epoch):
                self._assignments.forgotten(name, unit, epoch)
                if self._assignments.of(name, unit, epoch) is not None:
                    return self._end(unit, "revoke_finished")
        return []

    def _take_in(self, process: str, wanted: LeaderWanted, now: float) -> list[Action]:
        name = wanted.borrower
        actions: list[Action] = []
        if self.members.take_in(process, wanted):
            self._changed = self._joined = True
            actions.append(Record(self.group, "joined", borrower=name))
        presented = {held.unit for held in wanted.held}
        for unit, assignment in self._assignments.items():
            if assignment.borrower == name and unit not in presented:
                self._assignments.repeat(unit, now)
        kept = []
        for held in wanted.held:
            if self._assignments.of(name, held.unit, held.epoch) is not None:
                kept.append(held)
                self._assignments.confirm(held.unit, "presented")
                if held.revoking:
                    actions += self._revoke(held.unit, reasons.BEING_LET_GO, now)
        answer = LeaderConnectResponse(self.group, name, self.term, wanted.held, tuple(kept))
        return [*actions, Send(process, answer)]

    def _progress(self, progress: UpdateProgress, now: float) -> list[Action]:
        name, unit, epoch = progress.borrower, progress.unit, progress.epoch
        self.marks[unit] = max(self.marks.get(unit, (0, 0)), (epoch, progress.mark))
        if self._assignments.of(name, unit, epoch) is None:
            return self._tell(Revoked(self.group, name, self.term, unit, epoch))
        self._assignments.confirm(unit, "update_progress")
        if progress.final:
            timeout_s = self.members[name].revoke_timeout_s
            self._assignments.finish(unit, timeout_s, now)
        elif progress.finished and unit in self._stored.open_units:
            self._stored.doubt_units(now)
        return []

    def _roster(self, roster: RosterRead) -> list[Action]:
        """Free what is no longer listed; tell those that believe to be known and are not."""
        refused: list[Action] = [
            Send(roster.process, Invalidate(self.group, name, self.term))
            for name in self.members.strange_in(roster)
        ]
        return self._lose(self.members.missing_in(roster), reasons.ENDED) + refused

    def _take_grants(self, read: GrantsRead, now: float) -> None:
        """Take up what the store has. Grants of which no borrower was told are made again, and
        those that a seek has fenced are taken away."""
        if not self._stored.take_grants(read.grants, now):
            return
        self._changed, self.deposed = True, read.deposed
        stands = {(grant.unit, grant.epoch) for grant in read.grants if not grant.fenced}
        for unit, assignment in self._assignments.items():
            if (unit, assignment.epoch) not in stands:
                timeout_s = self.members[assignment.borrower].revoke_timeout_s
                self._assignments.release(unit, "fenced", timeout_s, now)

    def _committed(self, done: GrantsCommitted, now: float) -> list[Action]:
        commit = self._stored.settle(done.number)
        if commit is None:
            return []
        self._changed = True
        self._stored.committed(commit, done.epoch)
        actions: list[Action] = []
        for grant in commit.granted:
            if grant.borrower in self.members:
                unit, name = grant.unit, grant.borrower
                before = self._assignments.grant(unit, name, done.epoch, now)
                why = reasons.why_granted(name, before, unit in self._stored.opened)
                actions.append(Record(self.group, "granted", unit, name, done.epoch, why))
        return actions

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if now >= self.adopt_until:
            actions += self._lose(self.members.unheard(), reasons.NOT_COME)
        for unit in self._assignments.give_up(now):
            actions += self._end(unit, "given up")
        actions += self._stored.questions(now)
        if self._changed and self._stored.certain:
            actions += self._plan(now)
        for message in self._assignments.due(now):
            actions += self._tell(message)
        return actions

    def _plan(self, now: float) -> list[Action]:
        """Revoke what is in the wrong place; commit what can be granted and what is free."""
        self._changed = False
        loads = self._stored.open_units
        epochs = self._stored.epochs
        assigned = self._assignments.items()
        owners = {unit: assignment.borrower for unit, assignment in assigned}
        moving = {unit for unit, assignment in assigned if assignment.leaving}
        moves = plan(loads, self.members, owners, moving)
        actions: list[Action] = []
        anew = reasons.ANOTHER_JOINED if self._joined else reasons.SHARED_ANEW
        self._joined = False
        for unit in moves.revoked:
            actions += self._revoke(unit, anew, now)
        closed = sorted(owners.keys() - loads.keys())
        states = self._stored.states if closed else {}
        for unit in closed:
            actions += self._revoke(unit, reasons.why_closed(states.get(unit)), now)
        granted = tuple(
            NewGrant(unit, name, self.members[name].process, epochs.get(unit, 0))
            for unit, name in moves.granted
            if self.members[name].heard
        )
        freed = epochs.keys() - owners.keys() - {grant.unit for grant in granted}
        return actions + self._stored.commit(granted, freed)

    def _revoke(self, unit: str, why: str, now: float) -> list[Action]:
        assignment = self._assignments.get(unit)
        assert assignment is not None
        borrower = self.members[assignment.borrower]
        if not borrower.heard or not self._assignments.revoke(unit, borrower.revoke_timeout_s, now):
            return []
        return [Record(self.group, "revoking", unit, assignment.borrower, assignment.epoch, why)]

    def _end(self, unit: str, cause: str, why: str = "") -> list[Action]:
        """The unit is free; what the store has of it is replaced or removed by the next commit."""
        ended = self._assignments.end(unit, cause)
        self._changed = True
        why = why or reasons.why_freed(ended, cause)
        return [Record(self.group, "freed", unit, ended.borrower, ended.epoch, why)]

    def _lose(self, names: Collection[str], why: str) -> list[Action]:
        actions: list[Action] = []
        for name in names:
            for unit, assignment in self._assignments.items():
                if assignment.borrower == name:
                    actions += self._end(unit, "borrower gone", f"its consumer {why}")
            self._assignments.forget(name)
            self._changed = True
            actions.append(Record(self.group, "left", borrower=name, why=why))
        self.members.remove(names)
        return actions

    def _tell(self, message: ToBorrower) -> list[Action]:
        if message.borrower not in self.members:
            return []
        return [Send(self.members[message.borrower].process, message)]
