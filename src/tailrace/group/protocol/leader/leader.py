"""The leader of a group: it knows the borrowers, and assigns the units.

A grant is committed to the store before its borrower receives it. The commit expects the leader's
own term and the basis of the decision. So a leader may crash, be wrong about which borrowers live,
or be replaced at any time: no two borrowers can write for one unit.

A new leader adopts the grants of earlier terms whose borrowers connect before `adopt_until`. Until
then it revokes nothing from borrowers that have not connected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tailrace.group.protocol.actions import Action, NewGrant, Send, WriteHistory
from tailrace.group.protocol.events import (
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    Tick,
    UnitsRead,
)
from tailrace.group.protocol.leader import reasons
from tailrace.group.protocol.leader.assignments import Assignments
from tailrace.group.protocol.leader.borrowers import Borrowers
from tailrace.group.protocol.leader.events import FromBorrower, LeaderEvent, ProcessLost, RosterRead
from tailrace.group.protocol.leader.known_store import KnownStore
from tailrace.group.protocol.leader.planner import plan
from tailrace.group.protocol.messages import (
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
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import StoredGrant


class Leader:
    """The leader of one group in one term. See `tailrace.machine.Machine`.

    `deposed` is set when the leader learns that its term has ended. `Leaders` may bring
    `adopt_until` forward when it learns that the previous leader has stopped.
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
        """The epoch and mark of each unit, as reported by borrowers; they only increase. Nothing
        is decided by them."""
        self.members = Borrowers()
        """The borrowers of the group."""
        self._joined = False
        self._times = times
        self._assignments = Assignments(group, term, times)
        self._stored = KnownStore(group, term, times, grants, now)
        self._changed = True
        self.members.adopt(grants, 2 * times.free_s)
        for grant in grants:
            self._assignments.adopt(grant.unit, grant.borrower, grant.epoch)
            if grant.fenced:
                self._assignments.release(grant.unit, "fenced", 2 * times.free_s, now)

    @property
    def idle(self) -> bool:
        """True if no plan or commit is outstanding."""
        return self._stored.certain and not self._changed

    def trusts(self, process: str) -> bool:
        """True if no borrower of a process may still deliver from a unit that it lost."""
        distrusted = self._assignments.distrusted
        return all(self.members[name].process != process for name in distrusted)

    def owner(self, unit: str) -> tuple[str, int] | None:
        """Return the borrower of a unit, and the epoch of its grant."""
        assignment = self._assignments.get(unit)
        return None if assignment is None else (assignment.borrower, assignment.epoch)

    def handle(self, event: LeaderEvent, now: float) -> list[Action]:
        """Handle an event. A deposed leader ignores all events."""
        if self.deposed:
            return []
        match event:
            case FromBorrower(process, message):
                return self._received(process, message, now)
            case ProcessLost(process, why):
                lost = self.members.of(process)
                self.members.refuse(lost)
                return self._remove(lost, why)
            case RosterRead():
                return self._roster(event)
            case UnitsRead(_, basis):
                self._changed = True
                self._stored.units_read(basis, now)
            case GrantsCommitted():
                return self._committed(event, now)
            case GrantsRefused(_, number, deposed):
                if self._stored.resolve(number) is not None:
                    self._changed, self.deposed = True, deposed
                    self._stored.invalidate_units(now)
                    self._stored.invalidate_grants(now)
            case GrantsUnknown(_, number):
                if self._stored.resolve(number) is not None:
                    self._changed = True
                    self._stored.invalidate_grants(now + self._times.resend_s)
            case GrantsRead():
                self._grants_read(event, now)
            case Tick():
                return self._tick(now)
        return []

    def deadline(self) -> float | None:
        """Return the time of the next plan, message or timeout."""
        if self.deposed:
            return None
        if self._changed and self._stored.certain:
            return float("-inf")
        times = [self._stored.deadline()]
        if self.members.not_connected():
            times.append(self.adopt_until)
        resend_at = self._assignments.deadline()
        return min(times) if resend_at is None else min(resend_at, *times)

    def validate(self) -> None:
        """Check every invariant of a leader."""
        self._assignments.validate()
        for unit, assignment in self._assignments.items():
            assert assignment.borrower in self.members, f"{unit} is assigned to an unknown borrower"
            stored = self._stored.epochs.get(unit) == assignment.epoch
            assert stored or assignment.leaving, f"{unit} is not as it is stored"
        if self._stored.pending is not None:
            granted = self._stored.pending.granted
            twice = [grant.unit for grant in granted if grant.unit in self._assignments]
            assert not twice, f"{twice} granted to two"

    def _received(self, process: str, message: ToLeader, now: float) -> list[Action]:
        name = message.borrower
        if isinstance(message, LeaderWanted):
            return self._connect(process, message, now)
        if name not in self.members:
            if isinstance(message, Disconnect):
                return []
            return [Send(process, Invalidate(self.group, name, self.term))]
        match message:
            case Disconnect():
                return self._remove([name], reasons.CLOSED)
            case UpdateProgress():
                return self._progress(message, now)
            case RevokeFinished(unit=unit, epoch=epoch):
                self._assignments.forgotten(name, unit, epoch)
                if self._assignments.of(name, unit, epoch) is not None:
                    return self._end(unit, "revoke_finished")
        return []

    def _connect(self, process: str, wanted: LeaderWanted, now: float) -> list[Action]:
        name = wanted.borrower
        if self.members.refuses(name):
            return [Send(process, Invalidate(self.group, name, self.term, wanted=True))]
        actions: list[Action] = []
        if self.members.connect(process, wanted):
            self._changed = self._joined = True
            actions.append(WriteHistory(self.group, "joined", borrower=name))
        presented = {(held.unit, held.epoch) for held in wanted.held}
        for unit, assignment in self._assignments.items():
            if assignment.borrower == name and (unit, assignment.epoch) not in presented:
                self._assignments.grant_again(unit, now)
        kept = []
        for held in wanted.held:
            if self._assignments.of(name, held.unit, held.epoch) is not None:
                kept.append(held)
                self._assignments.confirm(held.unit, "presented")
                if held.revoking:
                    actions += self._revoke(held.unit, reasons.REVOKED_BEFORE, now)
        answer = LeaderConnectResponse(self.group, name, self.term, wanted.held, tuple(kept))
        return [*actions, Send(process, answer)]

    def _progress(self, progress: UpdateProgress, now: float) -> list[Action]:
        name, unit, epoch = progress.borrower, progress.unit, progress.epoch
        self.marks[unit] = max(self.marks.get(unit, (0, 0)), (epoch, progress.mark))
        if self._assignments.of(name, unit, epoch) is None:
            return self._send(Revoked(self.group, name, self.term, unit, epoch))
        self._assignments.confirm(unit, "update_progress")
        if progress.final:
            timeout_s = self.members[name].revoke_timeout_s
            self._assignments.finish(unit, timeout_s, now)
        elif progress.finished and unit in self._stored.open_units:
            self._stored.invalidate_units(now)
        return []

    def _roster(self, roster: RosterRead) -> list[Action]:
        """Remove borrowers that are not listed; send `Invalidate` to those unknown here."""
        refused: list[Action] = [
            Send(roster.process, Invalidate(self.group, name, self.term))
            for name in self.members.unknown_in(roster)
        ]
        return self._remove(self.members.missing_in(roster), reasons.NOT_CLOSED) + refused

    def _grants_read(self, read: GrantsRead, now: float) -> None:
        """Record the present grants. Grants that no borrower received are made again; those that a
        seek has fenced are revoked."""
        if not self._stored.grants_read(read.grants, now):
            return
        self._changed, self.deposed = True, read.deposed
        stands = {(grant.unit, grant.epoch) for grant in read.grants if not grant.fenced}
        for unit, assignment in self._assignments.items():
            if (unit, assignment.epoch) not in stands:
                timeout_s = self.members[assignment.borrower].revoke_timeout_s
                self._assignments.release(unit, "fenced", timeout_s, now)

    def _committed(self, done: GrantsCommitted, now: float) -> list[Action]:
        commit = self._stored.resolve(done.number)
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
                actions.append(WriteHistory(self.group, "granted", unit, name, done.epoch, why))
        return actions

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if now >= self.adopt_until:
            actions += self._remove(self.members.not_connected(), reasons.NOT_CONNECTED)
        for unit in self._assignments.give_up(now):
            actions += self._end(unit, "given up")
        actions += self._stored.reads_due(now)
        if self._changed and self._stored.certain:
            actions += self._plan(now)
        for message in self._assignments.due(now):
            actions += self._send(message)
        return actions

    def _plan(self, now: float) -> list[Action]:
        """Revoke units that must move; commit new grants, and remove those of free units."""
        self._changed = False
        loads = self._stored.open_units
        epochs = self._stored.epochs
        assigned = self._assignments.items()
        owners = {unit: assignment.borrower for unit, assignment in assigned}
        moving = {unit for unit, assignment in assigned if assignment.leaving}
        moves = plan(loads, self.members, owners, moving)
        actions: list[Action] = []
        why = reasons.CONSUMER_JOINED if self._joined else reasons.PARTITIONS_CHANGED
        self._joined = False
        for unit in moves.revoked:
            actions += self._revoke(unit, why, now)
        closed = sorted(owners.keys() - loads.keys())
        states = self._stored.states if closed else {}
        for unit in closed:
            actions += self._revoke(unit, reasons.why_closed(states.get(unit)), now)
        granted = tuple(
            NewGrant(unit, name, self.members[name].process, epochs.get(unit, 0))
            for unit, name in moves.granted
            if self.members[name].connected
        )
        freed = epochs.keys() - owners.keys() - {grant.unit for grant in granted}
        return actions + self._stored.commit(granted, freed)

    def _revoke(self, unit: str, why: str, now: float) -> list[Action]:
        assignment = self._assignments.get(unit)
        assert assignment is not None
        borrower = self.members[assignment.borrower]
        if not borrower.connected or not self._assignments.revoke(
            unit, borrower.revoke_timeout_s, now
        ):
            return []
        return [
            WriteHistory(self.group, "revoking", unit, assignment.borrower, assignment.epoch, why)
        ]

    def _end(self, unit: str, cause: str, why: str = "") -> list[Action]:
        """Free a unit. The next commit replaces or removes its stored grant."""
        ended = self._assignments.end(unit, cause)
        self._changed = True
        why = why or reasons.why_freed(ended, cause)
        return [WriteHistory(self.group, "freed", unit, ended.borrower, ended.epoch, why)]

    def _remove(self, names: Collection[str], why: str) -> list[Action]:
        actions: list[Action] = []
        for name in names:
            for unit, assignment in self._assignments.items():
                if assignment.borrower == name:
                    actions += self._end(unit, "borrower gone", why)
            self._assignments.forget(name)
            self._changed = True
            actions.append(WriteHistory(self.group, "left", borrower=name, why=why))
        self.members.remove(names)
        return actions

    def _send(self, message: ToBorrower) -> list[Action]:
        if message.borrower not in self.members:
            return []
        return [Send(self.members[message.borrower].process, message)]
