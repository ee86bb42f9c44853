"""Signs of life between two processes: one ping for all borrowers of the one in all groups that the
other leads."""

from __future__ import annotations

from typing import Final

from tailrace.group.messages import Ping, PingResponse
from tailrace.group.times import Times

_REMEMBERED_MAX: Final = 16


class Pulse:
    """What a process knows of another that leads groups of its borrowers. For one thread.

    The answer to a ping extends the right to hand out from the time at which the ping was *sent*,
    and only for groups that the other process says it leads, and for borrowers that are in the list
    which it goes by.
    """

    def __init__(self, times: Times, now: float) -> None:
        self._times = times
        self._number = 0
        self._sent: dict[int, float] = {}
        self._answered: dict[str, tuple[int, float, int]] = {}
        """By group: the term, when the ping was sent, and the version of the list."""
        self.ping_at = now

    def ping(self, roster_version: int, now: float) -> Ping:
        """The next ping; the one after it is due a while later."""
        self._number += 1
        self._sent[self._number] = now
        if len(self._sent) > _REMEMBERED_MAX:
            del self._sent[min(self._sent)]
        self.ping_at = now + self._times.ping_s
        return Ping(self._number, roster_version)

    def answered(self, response: PingResponse) -> None:
        """Take in an answer; one that comes late or twice takes nothing back."""
        sent_at = self._sent.get(response.number)
        if sent_at is not None:
            for group, term in response.led:
                answer = term, sent_at, response.roster_version
                self._answered[group] = max(self._answered.get(group, answer), answer)

    def until(self, group: str, term: int, roster_version: int) -> float:
        """Up to when a borrower that the leader of this term took in may hand out.

        It is in lists from `roster_version` on.
        """
        answered_term, sent_at, known_version = self._answered.get(group, (0, 0.0, 0))
        if answered_term != term or known_version < roster_version:
            return float("-inf")
        return sent_at + self._times.hold_s
