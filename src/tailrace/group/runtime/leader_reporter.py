"""What a process reports of the groups that it leads."""

from __future__ import annotations

from collections.abc import Callable

from tailrace import telemetry
from tailrace.reporting.sample import Sample


class LeaderReporter:
    """A `Reporter` of a process. `leads` returns the groups that it leads, in any thread."""

    def __init__(self, leads: Callable[[], list[str]]) -> None:
        self._leads = leads

    def report(self) -> list[Sample]:
        """Return the samples of now."""
        return [Sample(telemetry.GROUP_LEADER, (group,), 1) for group in self._leads()]

    def unready(self) -> None:
        """Return None: a process works without leading anything."""
