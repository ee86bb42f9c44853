"""The units that a borrower has, and the highest epoch of each that it has heard of: so nothing
that comes late brings back what is over."""

from __future__ import annotations

from collections.abc import ItemsView

from tailrace.group.messages import Held
from tailrace.group.states import STREAM, StreamState
from tailrace.group.times import Resend, Times


class Stream:
    """A unit that the borrower has."""

    __slots__ = ("epoch", "final", "finished", "mark", "report", "state")

    def __init__(self, epoch: int) -> None:
        self.state = STREAM.move(None, "grant", StreamState.GRANTED)
        self.epoch = epoch
        self.mark = 0
        self.final = False
        """Whether all that was done is durable, and no more will be."""
        self.finished = False
        """Whether the unit has come to its end."""
        self.report: Resend | None = None
        """When to report again what the leader has to act on."""

    def revoke(self, cause: str) -> None:
        """Hand out no more."""
        self.state = STREAM.move(self.state, cause, StreamState.REVOKING)
        self.report = None

    def report_until_answered(self, times: Times, now: float) -> None:
        """Something is reported now, and is to be again."""
        self.report = Resend(times, now)
        self.report.due(now)


class Borrowed:
    """The units of one borrower. For one thread."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._newest: dict[str, int] = {}

    def __contains__(self, unit: object) -> bool:
        return unit in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    def items(self) -> ItemsView[str, Stream]:
        """The units."""
        return self._streams.items()

    def of(self, unit: str, epoch: int) -> Stream | None:
        """A unit, if it is here by the grant of this epoch."""
        stream = self._streams.get(unit)
        return stream if stream is not None and stream.epoch == epoch else None

    def is_new(self, unit: str, epoch: int) -> bool:
        """Whether nothing of this epoch, or a later one, was heard before."""
        return epoch > self._newest.get(unit, 0)

    def hear(self, unit: str, epoch: int) -> None:
        """Nothing of an earlier epoch counts any more, nor comes this one back once it is over."""
        self._newest[unit] = epoch

    def add(self, unit: str, epoch: int) -> Stream:
        """The unit was granted."""
        self.hear(unit, epoch)
        stream = self._streams[unit] = Stream(epoch)
        return stream

    def remove(self, unit: str, cause: str) -> int:
        """The unit is no longer here; the epoch that it had."""
        stream = self._streams.pop(unit)
        STREAM.check(stream.state, cause, None)
        return stream.epoch

    @property
    def held(self) -> tuple[Held, ...]:
        """All of it, as a leader is told."""
        return tuple(
            Held(unit, stream.epoch, stream.state is StreamState.REVOKING)
            for unit, stream in self._streams.items()
        )

    @property
    def final(self) -> bool:
        """Whether nothing will be done any more of any unit."""
        return all(stream.final for stream in self._streams.values())

    def deadline(self) -> float | None:
        """When to report something again."""
        reports = [stream.report.at for stream in self._streams.values() if stream.report]
        return min(reports, default=None)

    def validate(self) -> None:
        """Every invariant of every unit."""
        for unit, stream in self._streams.items():
            assert self._newest[unit] == stream.epoch, f"{unit} is of an old epoch"
            assert stream.state is StreamState.REVOKING or not stream.final, f"{unit} is final"
