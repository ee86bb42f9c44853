"""A group in the Python API."""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.backend.pickling import Unpicklable
from tailrace.clock import Clock
from tailrace.errors import InvalidValue
from tailrace.group.store.definition import read_group
from tailrace.group.store.describe import GroupDetail, PartitionLag, lag, show_group
from tailrace.group.store.history import HistoryLine, read_history, record_change
from tailrace.group.store.lifecycle import delete_group
from tailrace.group.store.seek import seek, skip
from tailrace.group.store.start import StartLike, format_start, parse_start
from tailrace.message import Position


class Group(Unpicklable):
    """An existing group. Threads may share it, and a forked process may use it."""

    def __init__(self, backend: Backend, name: str, clock: Clock) -> None:
        read_group(backend, name)
        self.name = name
        self._backend = backend
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Group {self.name} of {self._backend.name}>"

    def describe(self) -> GroupDetail:
        """Return the group's leader, its consumers, and its partitions with their owners."""
        return show_group(self._backend, self.name)

    def lag(self) -> list[PartitionLag]:
        """Return the lag of each partition that is not finished, the highest lag first."""
        return lag(self._backend, self.name)

    def history(self, count: int = 1000) -> list[HistoryLine]:
        """Return the newest `count` events: joins, grants, revocations, terms, failures, seeks and
        skips, the newest last."""
        return read_history(self._backend, self.name, count)

    def seek(self, to: StartLike) -> dict[str, int]:
        """Move the group to other offsets, forward or back. Returns the new offset of partitions.

        `to` is ``"earliest"``, ``"latest"``, an aware datetime, a position, or offsets by
        partition. Consumers may keep running: they continue from there.
        """
        target = parse_start(to, "to")
        targets = seek(self._backend, self.name, target)
        why = f"to {format_start(target)}"
        record_change(self._backend, self.name, "seek", why, self._clock.now_ms())
        return {str(where): offset for where, offset in targets.items()}

    def skip(self, position: Position | str, *, reason: str) -> bool:
        """Skip one message that no consumer can process: acknowledge it for the group.

        Consumers may keep running: the partition is granted again, and the messages of the same key
        follow. Returns False and changes nothing if the message is already acknowledged. The
        group's history keeps the reason, which must not be empty.
        """
        where = Position.parse(position) if isinstance(position, str) else position
        if not isinstance(where, Position):
            raise InvalidValue(
                "position", position, "the position of a message, such as 'orders/1.7@42'"
            )
        text = check_reason(reason)
        skipped = skip(self._backend, self.name, where)
        if skipped:
            why = f"{where}: {text}"
            record_change(self._backend, self.name, "skip", why, self._clock.now_ms())
        return skipped

    def delete(self) -> None:
        """Delete the group and its progress. Its consumers raise `UnknownGroup`."""
        delete_group(self._backend, self.name)


def check_reason(reason: str) -> str:
    """Return a reason without surrounding blanks. Raises `InvalidValue` if it is empty."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidValue(
            "reason", reason, "a text that explains the change; it is kept in the history"
        )
    return reason.strip()
