"""How long things take in a group, and when what was not answered is said again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tailrace.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a protocol, in seconds.

    A borrower hands nothing out once `lease_s` less `margin_s` have passed since it sent the last
    ping that was answered; a leader frees what the borrower has when `lease_s` and `margin_s` have
    passed since it got one. So the first has stopped before the second begins, whatever their
    clocks show, as long as they run equally fast to within the margins.
    """

    lease_s: float = 3.0
    ping_s: float = 1.0
    margin_s: float = 0.3
    resend_s: float = 0.2
    resend_max_s: float = 2.0
    leave_s: float = 1.0
    """How long a borrower that leaves may drain what it has."""
    refresh_s: float = 10.0
    """How often a leader looks at its units although nobody told it to."""
    probe_s: float = 0.25
    """How often a process looks whether those that it depends on are dead."""

    def __post_init__(self) -> None:
        if not 0 < self.margin_s < self.ping_s < self.lease_s - self.margin_s:
            raise InvalidValue(
                "lease_s, ping_s and margin_s",
                (self.lease_s, self.ping_s, self.margin_s),
                "0 < margin_s < ping_s < lease_s - margin_s",
            )

    @classmethod
    def of(cls, lease: timedelta) -> Times:
        """The times that go with a lease: a ping is a third of it, the margin a tenth."""
        lease_s = lease / timedelta(seconds=1)
        return cls(lease_s=lease_s, ping_s=lease_s / 3, margin_s=lease_s / 10)

    @property
    def hold_s(self) -> float:
        """How long whoever was granted something may go by it, from when it asked."""
        return self.lease_s - self.margin_s

    @property
    def free_s(self) -> float:
        """How long whoever granted something leaves it alone, from when it was asked."""
        return self.lease_s + self.margin_s


class Resend:
    """When to say something again that was not answered: soon at first, then less and less often.

    It is due at once when it is made.
    """

    __slots__ = ("_times", "_wait_s", "at")

    def __init__(self, times: Times, now: float) -> None:
        self._times = times
        self._wait_s = times.resend_s
        self.at = now

    def due(self, now: float) -> bool:
        """Whether to say it now; if so, the next time is later."""
        if now < self.at:
            return False
        self.at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, self._times.resend_max_s)
        return True
