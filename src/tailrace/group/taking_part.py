"""The runtime of a process, as a session sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tailrace.group.events import Event
from tailrace.message import Partition


class Runtime(Protocol):
    """What a session needs of the runtime of its process. Any thread may call it."""

    def tell(self, event: Event) -> None:
        """Tell a fact. Never blocks."""

    def until(self, session: str) -> float:
        """The monotonic time up to which the session may hand out deliveries. It falls only
        together with calls of `drop`. Raises what made the runtime fail."""

    def await_records(self, session: str, ends: Mapping[Partition, int]) -> None:
        """Call `wake` with a partition, once, when it has records beyond its offset, is sealed or
        is gone. What else is awaited stays so, also what the session has let go of."""

    def progress_due(self, session: str) -> None:
        """Call `save` within the progress interval."""

    def save_soon(self, session: str) -> None:
        """Call `save` at once."""

    def leave(self, session: str) -> None:
        """The session is over."""
