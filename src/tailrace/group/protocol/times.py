"""The times of the group protocol, and the schedule of messages that are sent until answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tailrace.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the protocol, in seconds.

    A borrower stops delivering `lease_s - margin_s` after it sent the last ping that was answered.
    A leader frees the units of a borrower `lease_s + margin_s` after the last ping arrived. So the
    borrower stops before the leader frees, whatever their clocks show, as long as the clocks run
    equally fast to within the margins.
    """

    lease_s: float = 3.0
    ping_s: float = 1.0
    margin_s: float = 0.3
    resend_s: float = 0.2
    resend_max_s: float = 2.0
    leave_s: float = 1.0
    """The longest time that a leaving borrower may take to drain its units."""
    refresh_s: float = 10.0
    """The interval at which a leader reads its units without any notice of a change."""
    probe_s: float = 0.25
    """The interval at which a process probes the processes that it depends on."""

    def __post_init__(self) -> None:
        if not 0 < self.margin_s < self.ping_s < self.lease_s - self.margin_s:
            raise InvalidValue(
                "lease_s, ping_s and margin_s",
                (self.lease_s, self.ping_s, self.margin_s),
                "0 < margin_s < ping_s < lease_s - margin_s",
            )

    @classmethod
    def of(cls, lease: timedelta) -> Times:
        """Return the times for a lease: pings every third of it, and a margin of a tenth."""
        lease_s = lease / timedelta(seconds=1)
        return cls(lease_s=lease_s, ping_s=lease_s / 3, margin_s=lease_s / 10)

    @property
    def hold_s(self) -> float:
        """How long a process may act on an answer, from when it sent the request."""
        return self.lease_s - self.margin_s

    @property
    def free_s(self) -> float:
        """How long the process that answered waits before it frees, from when it answered."""
        return self.lease_s + self.margin_s


class Resend:
    """When to repeat a message that was not answered: soon at first, then less and less often.

    The first message is due at once.
    """

    __slots__ = ("_times", "_wait_s", "at")

    def __init__(self, times: Times, now: float) -> None:
        self._times = times
        self._wait_s = times.resend_s
        self.at = now

    def due(self, now: float) -> bool:
        """True if the message must be sent now; schedules the next time if so."""
        if now < self.at:
            return False
        self.at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, self._times.resend_max_s)
        return True
