"""A group as its operators hold it in Python."""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.errors import InvalidValue
from tailrace.group.definition import read_group
from tailrace.group.history import HistoryLine, note, read_history
from tailrace.group.opening import delete_group
from tailrace.group.sending import seek, skip
from tailrace.group.starting import StartLike, format_start, parse_start
from tailrace.group.view import GroupDetail, StreamLag, lag, show_group
from tailrace.message import Position


class Group:
    """A group that exists. May be shared by threads and carried over a fork."""

    def __init__(self, backend: Backend, name: str, clock: Clock) -> None:
        read_group(backend, name)
        self.name = name
        self._backend = backend
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Group {self.name} of {self._backend.name}>"

    def describe(self) -> GroupDetail:
        """Its leader, its consumers, and who consumes which stream."""
        return show_group(self._backend, self.name)

    def lag(self) -> list[StreamLag]:
        """How far it is behind in each stream that is not finished, those with most first."""
        return lag(self._backend, self.name)

    def history(self, count: int = 1000) -> list[HistoryLine]:
        """Joins, grants, revocations, terms, failures, seeks and skips, the newest last."""
        return read_history(self._backend, self.name, count)

    def seek(self, to: StartLike) -> dict[str, int]:
        """Send it elsewhere, forward or back; where each stream that this concerns goes on.

        `to` is ``"earliest"``, ``"latest"``, an aware datetime, a position, or offsets by
        partition. Its consumers need not be stopped: they go on from there.
        """
        target = parse_start(to, "to")
        targets = seek(self._backend, self.name, target)
        why = f"to {format_start(target)}"
        note(self._backend, self.name, "seek", why, self._clock.now_ms())
        return {str(where): offset for where, offset in targets.items()}

    def skip(self, position: Position | str, *, reason: str) -> bool:
        """Pass over one message that no consumer can do: it counts as acknowledged.

        All else is as it was. Its consumers need not be stopped: whoever has its partition gets
        that again, with the rest of the message's key. False, with nothing done, when the message
        is acknowledged. The group's history keeps the reason, which may not be empty.
        """
        where = Position.parse(position) if isinstance(position, str) else position
        if not isinstance(where, Position):
            raise InvalidValue("position", position, "that of a message, such as 'orders/1.7@42'")
        said = checked_reason(reason)
        skipped = skip(self._backend, self.name, where)
        if skipped:
            why = f"{where}: {said}"
            note(self._backend, self.name, "skip", why, self._clock.now_ms())
        return skipped

    def delete(self) -> None:
        """Forget it and how far it is. Its consumers get an error."""
        delete_group(self._backend, self.name)


def checked_reason(reason: str) -> str:
    """A reason in words; `InvalidValue` for an empty one."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidValue("reason", reason, "a text that says why; it is kept")
    return reason.strip()
