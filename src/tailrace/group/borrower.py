"""The protocol with a group's leader, for one subscription of one session.

A borrower only ever goes forward: it connects, is connected, unsubscribes, and is gone. When its
leader does not know it, it resets: the `Agent` makes another, with another name. When another
leader comes it stays connected, keeps what it was granted, and presents it there.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.actions import Action, Drain, Drop, Install, Send
from tailrace.group.borrowed import Borrowed, Stream
from tailrace.group.events import Died, Drained, Lost, Progressed, Tick, Unsubscribed
from tailrace.group.messages import (
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
from tailrace.group.states import BORROWER, BorrowerState, StreamState
from tailrace.group.times import Resend, Times
from tailrace.group.unit import LeaderEntry


class LeaderAt(NamedTuple):
    """The registry knows who leads the group. Lists of borrowers for that leader have this one from
    `roster_version` on."""

    entry: LeaderEntry
    roster_version: int


BorrowerEvent: TypeAlias = (
    ToBorrower | LeaderAt | Progressed | Drained | Lost | Unsubscribed | Died | Tick
)


class Borrower:
    """One subscription of a session, towards the leader. See `tailrace.machine.Machine`.

    `state` is None once it is gone. `reset` says that it went because its leader refused it.
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
        self.reset = False
        self.state: BorrowerState | None = BORROWER.move(
            None, "subscribe", BorrowerState.CONNECTING
        )
        self.leader: LeaderEntry | None = None
        """Who leads by the store."""
        self.taken_in_by: LeaderEntry | None = None
        """The leader that answered last: the one whose word counts."""
        self.connect_until = float("-inf")
        """Up to when it may go by the answer to its `LeaderWanted`."""
        self.roster_version = roster_version
        self._times = times
        self._borrowed = Borrowed()
        self._present: Resend | None = None
        self._wanted_since = 0.0
        self._leave_at: float | None = None

    @property
    def connected(self) -> bool:
        """Whether the one that leads now has taken it in."""
        return self.leader is not None and self.taken_in_by == self.leader

    def handle(self, event: BorrowerEvent, now: float) -> list[Action]:
        """Take in an event. Once gone, it answers nothing."""
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
        """When something is to be said again."""
        if self.state is None:
            return None
        present_at = None if self._present is None else self._present.at
        moments = (self._borrowed.deadline(), present_at, self._leave_at)
        return min((moment for moment in moments if moment is not None), default=None)

    def validate(self) -> None:
        """Every invariant of a borrower."""
        self._borrowed.validate()
        assert self.state is not None or not self._borrowed, f"{self.name} is gone and has units"
        assert (self.state is BorrowerState.UNSUBSCRIBING) == (self._leave_at is not None)
        assert self.state is not BorrowerState.CONNECTING or not self._borrowed

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
        held = self._borrowed.held
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
            self.taken_in_by = self.leader
            self.connect_until = self._wanted_since + self._times.hold_s
        actions: list[Action] = []
        kept = {(held.unit, held.epoch) for held in answer.kept}
        for unit, epoch in [(held.unit, held.epoch) for held in answer.presented]:
            if self._borrowed.of(unit, epoch) is not None and (unit, epoch) not in kept:
                actions += self._forget(unit, "not kept")
        return actions

    def _grant(self, grant: Grant) -> list[Action]:
        if not self._from_my_leader(grant) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        unit, epoch = grant.unit, grant.epoch
        if self._borrowed.is_new(unit, epoch):
            actions = self._forget(unit, "overtaken") if unit in self._borrowed else []
            stream = self._borrowed.add(unit, epoch)
            return [*actions, Install(self.session, unit, epoch), *self._report(unit, stream)]
        known = self._borrowed.of(unit, epoch)
        return self._forgotten(unit, epoch) if known is None else self._report(unit, known)

    def _revoke(self, revoke: Revoke) -> list[Action]:
        if not self._from_my_leader(revoke) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        stream = self._borrowed.of(revoke.unit, revoke.epoch)
        if stream is None:
            return self._forgotten(revoke.unit, revoke.epoch)
        if stream.final:
            return self._report(revoke.unit, stream)
        return self._drain(revoke.unit, stream, "revoke")

    def _revoked(self, revoked: Revoked) -> list[Action]:
        if not self._from_my_leader(revoked):
            return []
        held = self._borrowed.of(revoked.unit, revoked.epoch) is not None
        actions = self._forget(revoked.unit, "revoked") if held else []
        actions += self._forgotten(revoked.unit, revoked.epoch)
        return actions + self._leave_when_drained()

    def _invalidate(self, refusal: Invalidate) -> list[Action]:
        if not self._from_my_leader(refusal):
            return []
        self.reset = self.state is not BorrowerState.UNSUBSCRIBING
        return self._end("invalidate")

    def _progressed(self, progress: Progressed, now: float) -> list[Action]:
        stream = self._borrowed.of(progress.unit, progress.epoch)
        if stream is None:
            return []
        stream.mark = max(stream.mark, progress.mark)
        if progress.finished and not stream.finished:
            stream.finished = True
            stream.report_until_answered(self._times, now)
        return self._report(progress.unit, stream)

    def _drained(self, drained: Drained, now: float) -> list[Action]:
        stream = self._borrowed.of(drained.unit, drained.epoch)
        if stream is None or stream.state is not StreamState.REVOKING:
            return []
        return self._finalize(drained.unit, stream, drained.mark, now)

    def _lost(self, lost: Lost, now: float) -> list[Action]:
        """The session has nothing of the unit any more; the leader is to take note."""
        stream = self._borrowed.of(lost.unit, lost.epoch)
        if stream is None:
            return []
        if stream.state is StreamState.GRANTED:
            stream.revoke("fenced")
        return self._finalize(lost.unit, stream, stream.mark, now)

    def _finalize(self, unit: str, stream: Stream, mark: int, now: float) -> list[Action]:
        stream.mark = max(stream.mark, mark)
        stream.final = True
        if self.state is BorrowerState.UNSUBSCRIBING:
            # Its `Disconnect` frees all at once; to free one by one would bring others back.
            return self._leave_when_drained()
        stream.report_until_answered(self._times, now)
        return self._report(unit, stream)

    def _unsubscribe(self, now: float) -> list[Action]:
        if self.state is BorrowerState.CONNECTING:
            return self._leave("unsubscribe")
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []
        self.state = BORROWER.move(self.state, "unsubscribe", BorrowerState.UNSUBSCRIBING)
        self._leave_at = now + self._times.leave_s
        actions: list[Action] = []
        for unit, stream in self._borrowed.items():
            actions += self._drain(unit, stream, "unsubscribe")
        return actions + self._leave_when_drained()

    def _drain(self, unit: str, stream: Stream, cause: str) -> list[Action]:
        if stream.state is StreamState.REVOKING:
            return []
        stream.revoke(cause)
        return [Drain(self.session, unit, stream.epoch)]

    def _leave_when_drained(self) -> list[Action]:
        if self.state is BorrowerState.UNSUBSCRIBING and self._borrowed.final:
            return self._leave("all drained")
        return []

    def _leave(self, cause: str) -> list[Action]:
        return self._end(cause) + self._to_leader(Disconnect(self.group, self.name))

    def _end(self, cause: str) -> list[Action]:
        BORROWER.check(self.state, cause, None)
        self.state = None
        self._present = self._leave_at = None
        units = [unit for unit, _ in self._borrowed.items()]
        return [drop for unit in units for drop in self._forget(unit, "borrower gone")]

    def _tick(self, now: float) -> list[Action]:
        if self._leave_at is not None and now >= self._leave_at:
            return self._leave("leave timeout")
        actions = self._present_again(now)
        for unit, stream in self._borrowed.items():
            if stream.report is not None and stream.report.due(now):
                actions += self._report(unit, stream)
        return actions

    def _report(self, unit: str, stream: Stream) -> list[Action]:
        epoch, mark, final, finished = stream.epoch, stream.mark, stream.final, stream.finished
        progress = UpdateProgress(self.group, self.name, unit, epoch, mark, final, finished)
        return self._to_leader(progress)

    def _forget(self, unit: str, cause: str) -> list[Action]:
        return [Drop(self.session, unit, self._borrowed.remove(unit, cause))]

    def _forgotten(self, unit: str, epoch: int) -> list[Action]:
        """Tell the leader that nothing of that epoch is here, now and later."""
        actions: list[Action] = []
        if self._borrowed.is_new(unit, epoch):
            self._borrowed.hear(unit, epoch)
            if unit in self._borrowed:
                actions += self._forget(unit, "overtaken")
        return actions + self._to_leader(RevokeFinished(self.group, self.name, unit, epoch))

    def _from_my_leader(self, message: Grant | Revoke | Revoked | Invalidate) -> bool:
        return self.taken_in_by is not None and message.term == self.taken_in_by.term

    def _to_leader(self, message: ToLeader) -> list[Action]:
        return [] if self.leader is None else [Send(self.leader.process, message)]
