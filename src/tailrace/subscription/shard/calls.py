"""The calls of a shard: prepared, permitted by a commit, under way.

Before a message is called, something is stored that tells of the call if the worker ends during it.
A *suspect*, which may have ended an earlier worker, is called alone: while nothing else is in
flight in the worker its mark is stored, it is called, and its outcome is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tailrace.subscription.shard.turn import Turn


class Calls:
    """The messages of a shard on their way to their handlers. For one thread at a time."""

    def __init__(self) -> None:
        self.unmarked: list[Turn] = []
        """Those that wait for a commit."""
        self.under_way: set[Turn] = set()
        self.prepared = 0
        """The number of those that were not called yet."""
        self.alone: Turn | None = None
        """The suspect that has the worker for itself, until its outcome is stored."""
        self._suspects: deque[Turn] = deque()
        self._callable: deque[Turn] = deque()

    def add(self, turn: Turn, *, permitted: bool) -> None:
        """Add a message. If it is permitted, its call needs no commit before."""
        self.prepared += 1
        if turn.alone:
            self._suspects.append(turn)
        elif permitted:
            self._callable.append(turn)
        else:
            self.unmarked.append(turn)

    def pop_unmarked(self) -> list[Turn]:
        """Return those that wait for a commit, which permits them."""
        unmarked, self.unmarked = self.unmarked, []
        return unmarked

    def permit(self, turns: Iterable[Turn]) -> None:
        """Record that the commit is stored that these waited for."""
        for turn in turns:
            if turn.alone:
                self._callable.appendleft(turn)
            else:
                self._callable.append(turn)

    @property
    def wants_alone(self) -> bool:
        """True if a suspect waits."""
        return bool(self._suspects) and self.alone is None

    def begin_alone(self) -> None:
        """Prepare the call of a suspect. Only with nothing in flight in the worker."""
        assert self.wants_alone
        assert not self.under_way
        self.alone = self._suspects.popleft()
        self.unmarked.append(self.alone)

    @property
    def can_take(self) -> bool:
        """True if a message can be called now. While a suspect has the worker for itself, only
        that one."""
        return bool(self._callable) and self._callable[0].alone == (self.alone is not None)

    def take(self) -> Turn | None:
        """Return a message to call now; None if there is none."""
        if not self.can_take:
            return None
        turn = self._callable.popleft()
        self.prepared -= 1
        self.under_way.add(turn)
        return turn

    def end(self, turn: Turn) -> None:
        """Record that a call has ended."""
        self.under_way.remove(turn)

    @property
    def permitted(self) -> Iterator[Turn]:
        """Those that are permitted and not called."""
        return iter(self._callable)
