"""A thread of a simulated process, written as a generator.

The generator yields where a real thread would block: a piece of work with the store, or None to
wait until something happens. It is resumed with True, or with False when the store failed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Generic, TypeAlias, TypeVar

W = TypeVar("W")

Blocking: TypeAlias = Generator[W | None, bool, bool]
"""A part of a thread that may block, and returns True if everything succeeded."""


class SimulatedThread(Generic[W]):
    """Runs a generator up to where it waits."""

    def __init__(self, body: Generator[W | None, bool, object]) -> None:
        self.ended = False
        self.waits = False
        """True while it waits until something happens."""
        self._body = body
        self._begun = False

    def resume(self, succeeded: bool = True) -> W | None:
        """Continue until the thread blocks or ends. Returns the work that it waits for, if any."""
        if self.ended:
            return None
        self.waits = False
        try:
            if self._begun:
                work = self._body.send(succeeded)
            else:
                self._begun = True
                work = next(self._body)
        except StopIteration:
            self.ended = True
            return None
        self.waits = work is None
        return work

    def end(self) -> None:
        """Stop it where it is."""
        self.ended = True
        self.waits = False
