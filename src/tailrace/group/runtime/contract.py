"""The contract between the runtime of a process and its sessions, in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tailrace.group.protocol.events import Event
from tailrace.message import Partition


class LocalSession(Protocol):
    """A consumer's session in this process, as the runtime sees it.

    Only `save` may block. An exception that a method raises ends the runtime and fails all of its
    sessions.
    """

    @property
    def id(self) -> str:
        """The name of the session, unique in its process."""

    @property
    def group(self) -> str:
        """The name of the session's group."""

    def install(self, unit: str, epoch: int) -> None:
        """Own a unit from now on."""

    def drain(self, unit: str, epoch: int) -> None:
        """Finish the deliveries of a unit that are in flight, then post `Drained`."""

    def drop(self, unit: str, epoch: int) -> None:
        """Stop owning a unit at once."""

    def departed(self) -> None:
        """Learn that the session has left its group, after it posted `Unsubscribed`."""

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Learn that awaited partitions have records, are sealed or were deleted."""

    def store_changed(self) -> None:
        """Learn that a store entry changed that concerns the sessions of the group."""

    def save(self) -> None:
        """Commit acknowledgements. May block.

        If the backend fails, the session keeps them for the next call.
        """

    def fail(self, error: BaseException) -> None:
        """Raise this error in the consumer's iteration. Any thread; the last call of all."""


class SessionRuntime(Protocol):
    """The runtime of a process, as a session sees it. Any thread may call it."""

    def post(self, event: Event) -> None:
        """Queue an event for the protocol. Never blocks."""

    def until(self, session: str) -> float:
        """Return the monotonic time up to which the session may deliver.

        The time decreases only together with calls of `drop`. Raises the error that ended the
        runtime.
        """

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Call `wake` once for each partition that has records at or beyond its offset, is sealed
        or was deleted.

        Partitions of earlier calls stay awaited, even if the session no longer owns them.
        """

    def progress_due(self, session: str) -> None:
        """Call `save` within the progress interval."""

    def save_soon(self, session: str) -> None:
        """Call `save` at once."""

    def leave(self, session: str) -> None:
        """Remove the session."""
