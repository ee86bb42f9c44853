"""Pings between two processes: one ping serves all borrowers of the one process in all groups that
the other leads."""

from __future__ import annotations

from typing import Final

from tailrace.group.protocol.messages import Ping, PingResponse
from tailrace.group.protocol.times import Times

_REMEMBERED_MAX: Final = 16


class Heartbeat:
    """The pings of a process to another that leads groups of its borrowers. For one thread.

    The answer to a ping extends the time for deliveries, counted from when the ping was *sent*. It
    counts only for the groups that the answer names, and for borrowers in the version of the roster
    that the answer names.
    """

    def __init__(self, times: Times, now: float) -> None:
        self._times = times
        self._number = 0
        self._sent: dict[int, float] = {}
        self._answered: dict[str, tuple[int, float, int]] = {}
        """By group: the term, when the ping was sent, and the version of the roster."""
        self.ping_at = now

    def ping(self, roster_version: int, now: float) -> Ping:
        """Return the next ping, and schedule the one after it."""
        self._number += 1
        self._sent[self._number] = now
        if len(self._sent) > _REMEMBERED_MAX:
            del self._sent[min(self._sent)]
        self.ping_at = now + self._times.ping_s
        return Ping(self._number, roster_version)

    def answered(self, response: PingResponse) -> None:
        """Record an answer. A late or repeated answer never shortens the time for deliveries."""
        sent_at = self._sent.get(response.number)
        if sent_at is not None:
            for group, term in response.led:
                answer = term, sent_at, response.roster_version
                self._answered[group] = max(self._answered.get(group, answer), answer)

    def until(self, group: str, term: int, roster_version: int) -> float:
        """Return the time up to which a borrower may deliver that the leader of this term accepted.

        The borrower is in rosters from `roster_version` on.
        """
        answered_term, sent_at, known_version = self._answered.get(group, (0, 0.0, 0))
        if answered_term != term or known_version < roster_version:
            return float("-inf")
        return sent_at + self._times.hold_s
