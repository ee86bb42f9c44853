"""The protocol with a group's leader, for one subscription of one session.

A borrower only ever goes forward: it connects, is connected, unsubscribes, and is gone. When its
leader does not know it, it resets: the `Agent` makes another, with another name. When another
leader comes it stays connected, keeps what it was granted, and presents it there.

It remembers the highest epoch of every unit that it heard of, so nothing that comes late brings
back what is over.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tailrace.group.actions import Action, Drain, Drop, Install, Send
from tailrace.group.events import Died, Drained, Lost, Progressed, Tick, Unsubscribed
from tailrace.group.messages import (
    Disconnect,
    Grant,
    Held,
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
from tailrace.group.states import BORROWER, STREAM, BorrowerState, StreamState
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


class _Stream:
    """A unit that the borrower has."""

    __slots__ = ("epoch", "final", "finished", "mark", "report", "state")

    def __init__(self, epoch: int) -> None:
        self.state = STREAM.move(None, "grant", StreamState.GRANTED)
        self.epoch = epoch
        self.mark = 0
        self.final = False
        self.finished = False
        self.report: Resend | None = None
        """When to report again what the leader has to act on."""


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
        self._streams: dict[str, _Stream] = {}
        self._newest: dict[str, int] = {}
        self._present: Resend | None = None
        self._wanted_since = 0.0
        self._leave_at: float | None = None

    @property
    def connected(self) -> bool:
        """Whether the one that leads now has taken it in."""
        return self.leader is not None and self.taken_in_by == self.leader

    @property
    def held(self) -> tuple[Held, ...]:
        """What it has been granted."""
        return tuple(
            Held(unit, stream.epoch, stream.state is StreamState.REVOKING)
            for unit, stream in self._streams.items()
        )

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
                return self._revoke(event, now)
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
        waiting = [stream.report.at for stream in self._streams.values() if stream.report]
        if self._present is not None:
            waiting.append(self._present.at)
        if self._leave_at is not None:
            waiting.append(self._leave_at)
        return min(waiting, default=None)

    def validate(self) -> None:
        """Every invariant of a borrower."""
        for unit, stream in self._streams.items():
            assert self._newest[unit] == stream.epoch, f"{self.name} has {unit} of an old epoch"
            assert stream.state is StreamState.REVOKING or not stream.final, f"{unit} is final"
        assert self.state is not None or not self._streams, f"{self.name} is gone and has units"
        assert (self.state is BorrowerState.UNSUBSCRIBING) == (self._leave_at is not None)
        assert self.state is not BorrowerState.CONNECTING or not self._streams

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
        return self._to_leader(
            LeaderWanted(
                self.group, self.name, self.held, self.revoke_timeout_s, self.roster_version
            )
        )

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
            stream = self._streams.get(unit)
            if stream is not None and stream.epoch == epoch and (unit, epoch) not in kept:
                actions += self._forget(unit, "not kept")
        return actions

    def _grant(self, grant: Grant) -> list[Action]:
        if not self._from_my_leader(grant) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        unit, epoch = grant.unit, grant.epoch
        stream = self._streams.get(unit)
        if epoch > self._newest.get(unit, 0):
            actions = self._forget(unit, "overtaken") if stream is not None else []
            stream = self._streams[unit] = _Stream(epoch)
            self._newest[unit] = epoch
            actions.append(Install(self.session, unit, epoch))
            return actions + self._report(unit, stream)
        if stream is not None and stream.epoch == epoch:
            return self._report(unit, stream)
        return self._forgotten(unit, epoch)

    def _revoke(self, revoke: Revoke, now: float) -> list[Action]:
        if not self._from_my_leader(revoke) or self.state is BorrowerState.UNSUBSCRIBING:
            return []
        stream = self._having(revoke.unit, revoke.epoch)
        if stream is None:
            return self._forgotten(revoke.unit, revoke.epoch)
        if stream.final:
            return self._report(revoke.unit, stream)
        return self._drain(revoke.unit, stream, "revoke")

    def _revoked(self, revoked: Revoked) -> list[Action]:
        if not self._from_my_leader(revoked):
            return []
        actions: list[Action] = []
        if self._having(revoked.unit, revoked.epoch) is not None:
            actions += self._forget(revoked.unit, "revoked")
        actions += self._forgotten(revoked.unit, revoked.epoch)
        return actions + self._leave_when_drained()

    def _invalidate(self, refusal: Invalidate) -> list[Action]:
        if not self._from_my_leader(refusal):
            return []
        self.reset = self.state is not BorrowerState.UNSUBSCRIBING
        return self._end("invalidate")

    def _progressed(self, progress: Progressed, now: float) -> list[Action]:
        stream = self._having(progress.unit, progress.epoch)
        if stream is None:
            return []
        stream.mark = max(stream.mark, progress.mark)
        if progress.finished and not stream.finished:
            stream.finished = True
            stream.report = Resend(self._times, now)
            stream.report.due(now)
        return self._report(progress.unit, stream)

    def _drained(self, drained: Drained, now: float) -> list[Action]:
        stream = self._having(drained.unit, drained.epoch)
        if stream is None or stream.state is not StreamState.REVOKING:
            return []
        return self._finalize(drained.unit, stream, drained.mark, now)

    def _lost(self, lost: Lost, now: float) -> list[Action]:
        """The session has nothing of the unit any more; the leader is to take note."""
        stream = self._having(lost.unit, lost.epoch)
        if stream is None:
            return []
        if stream.state is StreamState.GRANTED:
            stream.state = STREAM.move(stream.state, "fenced", StreamState.REVOKING)
        return self._finalize(lost.unit, stream, stream.mark, now)

    def _finalize(self, unit: str, stream: _Stream, mark: int, now: float) -> list[Action]:
        stream.mark = max(stream.mark, mark)
        stream.final = True
        if self.state is BorrowerState.UNSUBSCRIBING:
            # Its `Disconnect` frees all at once; to free one by one would bring others back.
            return self._leave_when_drained()
        stream.report = Resend(self._times, now)
        stream.report.due(now)
        return self._report(unit, stream)

    def _unsubscribe(self, now: float) -> list[Action]:
        if self.state is BorrowerState.CONNECTING:
            return self._leave("unsubscribe")
        if self.state is BorrowerState.UNSUBSCRIBING:
            return []
        self.state = BORROWER.move(self.state, "unsubscribe", BorrowerState.UNSUBSCRIBING)
        self._leave_at = now + self._times.leave_s
        actions: list[Action] = []
        for unit, stream in self._streams.items():
            actions += self._drain(unit, stream, "unsubscribe")
        return actions + self._leave_when_drained()

    def _drain(self, unit: str, stream: _Stream, cause: str) -> list[Action]:
        if stream.state is StreamState.REVOKING:
            return []
        stream.state = STREAM.move(stream.state, cause, StreamState.REVOKING)
        stream.report = None
        return [Drain(self.session, unit, stream.epoch)]

    def _leave_when_drained(self) -> list[Action]:
        if self.state is BorrowerState.UNSUBSCRIBING and all(
            stream.final for stream in self._streams.values()
        ):
            return self._leave("all drained")
        return []

    def _leave(self, cause: str) -> list[Action]:
        return self._end(cause) + self._to_leader(Disconnect(self.group, self.name))

    def _end(self, cause: str) -> list[Action]:
        BORROWER.check(self.state, cause, None)
        actions: list[Action] = []
        for unit in list(self._streams):
            actions += self._forget(unit, "borrower gone")
        self.state = None
        self._present = self._leave_at = None
        return actions

    def _tick(self, now: float) -> list[Action]:
        if self._leave_at is not None and now >= self._leave_at:
            return self._leave("leave timeout")
        actions = self._present_again(now)
        for unit, stream in self._streams.items():
            if stream.report is not None and stream.report.due(now):
                actions += self._report(unit, stream)
        return actions

    def _report(self, unit: str, stream: _Stream) -> list[Action]:
        return self._to_leader(
            UpdateProgress(
                self.group,
                self.name,
                unit,
                stream.epoch,
                stream.mark,
                final=stream.final,
                finished=stream.finished,
            )
        )

    def _forget(self, unit: str, cause: str) -> list[Action]:
        stream = self._streams.pop(unit)
        STREAM.check(stream.state, cause, None)
        return [Drop(self.session, unit, stream.epoch)]

    def _forgotten(self, unit: str, epoch: int) -> list[Action]:
        """Tell the leader that nothing of that epoch is here, now and later."""
        actions: list[Action] = []
        if epoch > self._newest.get(unit, 0):
            self._newest[unit] = epoch
            if unit in self._streams:
                actions += self._forget(unit, "overtaken")
        return actions + self._to_leader(RevokeFinished(self.group, self.name, unit, epoch))

    def _having(self, unit: str, epoch: int) -> _Stream | None:
        stream = self._streams.get(unit)
        return stream if stream is not None and stream.epoch == epoch else None

    def _from_my_leader(self, message: Grant | Revoke | Revoked | Invalidate) -> bool:
        return self.taken_in_by is not None and message.term == self.taken_in_by.term

    def _to_leader(self, message: ToLeader) -> list[Action]:
        return [] if self.leader is None else [Send(self.leader.process, message)]
