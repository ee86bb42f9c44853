"""The calls of a shard: prepared, permitted by a commit, under way.

Before a message is called, something is stored that tells of the call if the worker ends during it.
A *suspect*, which may have ended an earlier worker, is called alone: while nothing else is in
flight in the process its mark is stored, it is called, and its outcome is stored. Dead letters that
are redelivered take turns with other messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from tailrace.subscription.shard.queues import Queue
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
        """The suspect that has the process for itself, until its outcome is stored."""
        self.letters_held = False
        """While True no dead letter is called, except a suspect."""
        self._suspects: deque[Turn] = deque()
        self._callable: deque[Turn] = deque()
        self._letters: deque[Turn] = deque()
        """The dead letters that can be called, without suspects."""
        self._took_letter = False
        self._early: deque[Turn] = deque()
        """Those that are acknowledged and not called. They go first."""

    def add(self, turn: Turn, *, permitted: bool) -> None:
        """Add a message. If it is permitted, its call needs no commit before."""
        self.prepared += 1
        if turn.alone:
            self._suspects.append(turn)
        elif permitted:
            self._queue_of(turn).append(turn)
        else:
            self.unmarked.append(turn)

    def wants_permits(self, few: int) -> bool:
        """True if a commit should permit the calls that wait for it: at most a few are permitted,
        or a suspect waits."""
        if self.alone is not None:
            return self.alone in self.unmarked
        return bool(self.unmarked) and len(self._callable) + len(self._early) <= few

    def pop_unmarked(self) -> list[Turn]:
        """Return those that wait for a commit, which permits them."""
        unmarked, self.unmarked = self.unmarked, []
        return unmarked

    def permit(self, turns: Iterable[Turn]) -> None:
        """Record that the commit is stored that these waited for."""
        for turn in turns:
            if turn.early:
                self._early.append(turn)
            elif turn.alone:
                self._callable.appendleft(turn)
            else:
                self._queue_of(turn).append(turn)

    @property
    def wants_alone(self) -> bool:
        """True if a suspect waits, and nothing that is acknowledged."""
        return bool(self._suspects) and self.alone is None and not self._early

    def begin_alone(self) -> None:
        """Prepare the call of a suspect. Only with nothing in flight in the process."""
        assert self.wants_alone
        assert not self.under_way
        self.alone = self._suspects.popleft()
        self.unmarked.append(self.alone)

    @property
    def can_take(self) -> bool:
        """True if a message can be called now. While a suspect has the process for itself,
        only that one."""
        return self._next is not None

    @property
    def can_join(self) -> bool:
        """True if the next message may be called together with others."""
        turn = self._next
        if turn is None or turn.slice is not None:
            return False
        return turn.early or not (turn.alone or turn.single)

    @property
    def _next(self) -> Turn | None:
        """The message to call next; None if there is none."""
        if self._early:
            return self._early[0]
        if self.alone is not None:
            return self._callable[0] if self._callable and self._callable[0].alone else None
        letters = bool(self._letters) and not self.letters_held
        if letters and not (self._callable and self._took_letter):
            return self._letters[0]
        return self._callable[0] if self._callable else None

    def _queue_of(self, turn: Turn) -> deque[Turn]:
        if turn.early:
            return self._early
        letter = turn.queue is Queue.DLQ and not turn.alone
        return self._letters if letter else self._callable

    @property
    def ready(self) -> bool:
        """True if a message can be called now, or a suspect waits."""
        return self.can_take or self.wants_alone

    def take(self) -> Turn | None:
        """Return a message to call now; None if there is none."""
        return self._begin(self._next)

    def take_early(self) -> Turn | None:
        """Return a message that is acknowledged and not called; None if there is none."""
        return self._begin(self._early[0] if self._early else None)

    def _begin(self, turn: Turn | None) -> Turn | None:
        if turn is None:
            return None
        queue = self._queue_of(turn)
        queue.popleft()
        self._took_letter = queue is self._letters
        self.prepared -= 1
        self.under_way.add(turn)
        return turn

    def end(self, turn: Turn) -> None:
        """Record that a call has ended."""
        self.under_way.remove(turn)

    @property
    def permitted(self) -> Iterator[Turn]:
        """Those that are permitted and not called."""
        return chain(self._callable, self._letters)

    @property
    def early(self) -> bool:
        """True if some are acknowledged and not called."""
        return bool(self._early)

    def split(self, turns: Iterable[Turn]) -> None:
        """Record that the call of several messages has failed: each is called again by itself."""
        for turn in turns:
            turn.single = True
            turn.outputs.clear()
            self.under_way.remove(turn)
            self.prepared += 1
            self._queue_of(turn).appendleft(turn)

    def unmark(self, turns: Iterable[Turn]) -> None:
        """Record that a commit removes what is stored about these and those that are permitted:
        they wait for another one. A suspect among them has the process until that commit is
        stored."""
        waiting = (*self.permitted, *turns, *self.pop_unmarked())
        self._callable.clear()
        self._letters.clear()
        for turn in waiting:
            if turn.alone:
                self._suspects.append(turn)
            else:
                self.unmarked.append(turn)
