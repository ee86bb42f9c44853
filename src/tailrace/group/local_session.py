"""A session, as the runtime of its process sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace.message import Partition


class LocalSession(Protocol):
    """What consumes for a group in this process.

    Nothing here may block but `save`, and nothing may raise but what nobody expected: that ends the
    runtime, for all of its sessions.
    """

    @property
    def id(self) -> str:
        """Names it as no other session of the process."""

    @property
    def group(self) -> str:
        """The group."""

    def install(self, unit: str, epoch: int) -> None:
        """It owns the unit."""

    def drain(self, unit: str, epoch: int) -> None:
        """It is to finish what it has in hand of the unit, and to tell `Drained`."""

    def drop(self, unit: str, epoch: int) -> None:
        """It no longer owns the unit."""

    def departed(self) -> None:
        """What it asked for by `Unsubscribed` is done."""

    def wake(self, partitions: Iterable[Partition]) -> None:
        """There is something in these partitions that it awaited."""

    def save(self) -> None:
        """Commit what was acknowledged. May block.

        A commit that the backend could not make is to be tried again when it is next due.
        """

    def fail(self, error: BaseException) -> None:
        """It cannot go on: iterating is to raise this. From any thread; nothing else follows."""
