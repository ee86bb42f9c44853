"""The protocol with a group's leader, for one subscription of one session.

A borrower connects, is connected, unsubscribes, and ends; it never goes back. If its leader does
not know it, the borrower ends and the `Agent` makes another with a new name. Under a new leader the
borrower stays connected, keeps its units, and presents them to that leader.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.protocol.actions import Action, Drain, Drop, Install, Send
from tailrace.group.protocol.borrower.units import BorrowedUnit, BorrowedUnits
from tailrace.group.protocol.events import Died, Drained, Lost, Progressed, Tick, Unsubscribed
from tailrace.group.protocol.messages import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Revoke,
    Revoked,
    RevokeFinished,
    ToBorrower,
    ToLeader,
    UpdateProgress,
)
from tailrace.group.protocol.states import BORROWER, BorrowedUnitState, BorrowerState
from tailrace.group.protocol.times import Resend, Times
from tailrace.group.protocol.unit import LeaderEntry


class LeaderAt(NamedTuple):
    """The group has this leader. Rosters for the leader list the borrower from `roster_version`
    on."""

    entry: LeaderEntry
    roster_version: int


BorrowerEvent: TypeAlias = (
    ToBorrower | LeaderAt | Progressed | Drained | Lost | Unsubscribed | Died | Tick
)


class Borrower:
    """One subscription of a session, towards the leader. See `tailrace.machine.Machine`.

    `state` is None once the borrower has ended.
    """

    def __init__(
        self,
        *,
        name: str,
        session: str,
        group: str,
        revoke_timeout_s: float,
        roster_version: int,
        times: Times,
    ) -> None:
        self.name = name
        self.session = session
        self.group = group
        self.revoke_timeout_s = revoke_timeout_s
        self.state: BorrowerState | None = BORROWER.move(
            None, "subscribe", BorrowerState.CONNECTING
        )
        self.leader: LeaderEntry | None = None
        """The leader by the store."""
        self.connected_to: LeaderEntry | None = None
        """The leader that accepted this borrower last. Only its messages count."""
        self.connect_until = float("-inf")
        """The time up to which the answer to `LeaderWanted` allows deliveries."""
        self.roster_version = roster_version
        self._times = times
        self._units = BorrowedUnits()
        self._present: Resend | None = None
        self._wanted_since = 0.0
        self._leave_at: float | None = None

    @property
    def connected(self) -> bool:
        """True if the present leader has accepted this borrower."""
        return self.leader is not None and self.connected_to == self.leader

    def handle(self, event: BorrowerEvent, now: float) -> list[Action]:
        """Handle an event. A borrower that has ended ignores all events."""
        if self.state is None:
            return []
        match event:
            case LeaderAt():
                return self._follow(event, now)
            case LeaderConnectResponse():
                return self._connected(event)
            case Grant():
                return self._grant(event)
            case Revoke():
                return self._revoke(event)
            case Revoked():
                return self._revoked(event)
            case Invalidate():
                return self._invalidate(event)
            case Progressed():
                return self._progressed(event, now)
            case Drained():
                return self._drained(event, now)
            case Lost():
                return self._lost(event, now)
            case Unsubscribed():
                return self._unsubscribe(now)
            case Died():
                return self._leave("died")
            case Tick():
                return self._tick(now)

    def deadline(self) -> float | None:
        """Return the time of the next message or timeout."""
        if self.state is None:
            return None
        present_at = None if self._present is None else self._present.at
        times = (self._units.deadline(), present_at, self._leave_at)
        return min((time for time in times if time is not None), default=None)

    def validate(self) -> None:
        """Check every invariant of a borrower."""
        self._units.validate()
        assert self.state is not None or not self._units, f"{self.name} has ended and has units"
        assert (self.state is BorrowerState.UNSUBSCRIBING) == (self._leave_at is not None)
        assert self.state is not BorrowerState.CONNECTING or not self._units

    def _follow(self, found: LeaderAt, now: float) -> list[Action]:
        if self.leader is not None and found.entry.term <= self.leader.term:
            return []
        self.leader, self.roster_version = found
        self._present = Resend(self._times, now)
        self._wanted_since = now
        return self._present_again(now)

    def _present_again(self, now: float) -> list[Action]:
        if self._present is None or not self._present.due(now):
            return []
        held = self._units.held
        wanted = LeaderWanted(
            self.group, self.name, held, self.revoke_timeout_s, self.roster_version
        )
        return self._to_leader(wanted)

    def _connected(self, answer: LeaderConnectResponse) -> list[Action]:
        if self.leader is None or answer.term != self.leader.term:
            return []
        if self.state is BorrowerState.CONNECTING:
            self.state = BORROWER.move(
                self.state, "leader_connect_response", BorrowerState.CONNECTED
            )
        if self._present is not None:
            self._present = None
            self.connected_to = self.leader
            self.connect_until = self._wanted_since + self._times.hold_s
        actions: list[Action] = []
        kept = {(held.unit, held.epoch) for held in answer.kept}
        for unit, epoch in [(held.unit, held.epoch) for held in answer.presented]:
            if self._units.of(unit, epoch) is not None and (unit, epoch) not in kept:
                actions += self._forget(unit, "not kept")
        return actions

    def _grant(self, grant: Grant) -> list[Action]:
        if not self._from_my_leader(grant) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        unit, epoch = grant.unit, grant.epoch
        if self._units.is_new(unit, epoch):
            actions = self._forget(unit, "overtaken") if unit in self._units else []
            borrowed = self._units.add(unit, epoch)
            return [*actions, Install(self.session, unit, epoch), *self._report(unit, borrowed)]
        known = self._units.of(unit, epoch)
        return self._forgotten(unit, epoch) if known is None else self._report(unit, known)

    def _revoke(self, revoke: Revoke) -> list[Action]:
        if not self._from_my_leader(revoke) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        borrowed = self._units.of(revoke.unit, revoke.epoch)
        if borrowed is None:
            return self._forgotten(revoke.unit, revoke.epoch)
        if borrowed.final:
            return self._report(revoke.unit, borrowed)
        return self._drain(revoke.unit, borrowed, "revoke")

    def _revoked(self, revoked: Revoked) -> list[Action]:
        if not self._from_my_leader(revoked):
            return []
        held = self._units.of(revoked.unit, revoked.epoch) is not None
        actions = self._forget(revoked.unit, "revoked") if held else []
        actions += self._forgotten(revoked.unit, revoked.epoch)
        return actions + self._leave_when_drained()

    def _invalidate(self, refusal: Invalidate) -> list[Action]:
        """End, unless the refusal is from an earlier leader. A leader that this borrower is
        connecting to may answer messages that overtook its `LeaderWanted`: those do not count."""
        leader = self.leader
        refused = refusal.wanted and leader is not None and refusal.term == leader.term
        if not refused and not self._from_my_leader(refusal):
            return []
        return self._end("invalidate")

    def _progressed(self, progress: Progressed, now: float) -> list[Action]:
        borrowed = self._units.of(progress.unit, progress.epoch)
        if borrowed is None:
            return []
        borrowed.mark = max(borrowed.mark, progress.mark)
        if progress.finished and not borrowed.finished:
            borrowed.finished = True
            borrowed.report_until_answered(self._times, now)
        return self._report(progress.unit, borrowed)

    def _drained(self, drained: Drained, now: float) -> list[Action]:
        borrowed = self._units.of(drained.unit, drained.epoch)
        if borrowed is None or borrowed.state is not BorrowedUnitState.REVOKING:
            return []
        return self._finalize(drained.unit, borrowed, drained.mark, now)

    def _lost(self, lost: Lost, now: float) -> list[Action]:
        """Report a unit that the session lost to a newer epoch as final."""
        borrowed = self._units.of(lost.unit, lost.epoch)
        if borrowed is None:
            return []
        if borrowed.state is BorrowedUnitState.GRANTED:
            borrowed.revoke("fenced")
        return self._finalize(lost.unit, borrowed, borrowed.mark, now)

    def _finalize(self, unit: str, borrowed: BorrowedUnit, mark: int, now: float) -> list[Action]:
        borrowed.mark = max(borrowed.mark, mark)
        borrowed.final = True
        if self.state is BorrowerState.UNSUBSCRIBING:
            # `Disconnect` frees all units at once. One by one, units could be granted back here.
            return self._leave_when_drained()
        borrowed.report_until_answered(self._times, now)
        return self._report(unit, borrowed)

    def _unsubscribe(self, now: float) -> list[Action]:
        if self.state is BorrowerState.CONNECTING:
            return self._leave("unsubscribe")
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []
        self.state = BORROWER.move(self.state, "unsubscribe", BorrowerState.UNSUBSCRIBING)
        self._leave_at = now + self._times.leave_s
        actions: list[Action] = []
        for unit, borrowed in self._units.items():
            actions += self._drain(unit, borrowed, "unsubscribe")
        return actions + self._leave_when_drained()

    def _drain(self, unit: str, borrowed: BorrowedUnit, cause: str) -> list[Action]:
        if borrowed.state is BorrowedUnitState.REVOKING:
            return []
        borrowed.revoke(cause)
        return [Drain(self.session, unit, borrowed.epoch)]

    def _leave_when_drained(self) -> list[Action]:
        if self.state is BorrowerState.UNSUBSCRIBING and self._units.final:
            return self._leave("all drained")
        return []

    def _leave(self, cause: str) -> list[Action]:
        return self._end(cause) + self._to_leader(Disconnect(self.group, self.name))

    def _end(self, cause: str) -> list[Action]:
        BORROWER.check(self.state, cause, None)
        self.state = None
        self._present = self._leave_at = None
        units = [unit for unit, _ in self._units.items()]
        return [drop for unit in units for drop in self._forget(unit, "borrower gone")]

    def _tick(self, now: float) -> list[Action]:
        if self._leave_at is not None and now >= self._leave_at:
            return self._leave("leave timeout")
        actions = self._present_again(now)
        for unit, borrowed in self._units.items():
            if borrowed.report is not None and borrowed.report.due(now):
                actions += self._report(unit, borrowed)
        return actions

    def _report(self, unit: str, borrowed: BorrowedUnit) -> list[Action]:
        progress = UpdateProgress(
            self.group,
            self.name,
            unit,
            borrowed.epoch,
            borrowed.mark,
            borrowed.final,
            borrowed.finished,
        )
        return self._to_leader(progress)

    def _forget(self, unit: str, cause: str) -> list[Action]:
        return [Drop(self.session, unit, self._units.remove(unit, cause))]

    def _forgotten(self, unit: str, epoch: int) -> list[Action]:
        """Report that the borrower does not hold the unit at that epoch, and never will."""
        actions: list[Action] = []
        if self._units.is_new(unit, epoch):
            self._units.record_epoch(unit, epoch)
            if unit in self._units:
                actions += self._forget(unit, "overtaken")
        return actions + self._to_leader(RevokeFinished(self.group, self.name, unit, epoch))

    def _from_my_leader(self, message: Grant | Revoke | Revoked | Invalidate) -> bool:
        return self.connected_to is not None and message.term == self.connected_to.term

    def _to_leader(self, message: ToLeader) -> list[Action]:
        return [] if self.leader is None else [Send(self.leader.process, message)]
