"""The targets of requests as tasks of a shard's owner: which is worked on, and which waits.

The tasks of a lane, which is a key or one letter without a key, are done one after the other, in
the order of their requests. Only some redeliveries are under way at once, so that the other
messages of the shard keep a part of the concurrency. One that waits for its next attempt gives its
place to another, and gets the next free one when it is due.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from tailrace.delivery.key_lanes import LaneName
from tailrace.subscription.shard.requests.request import LetterRequest, RequestAction
from tailrace.subscription.shard.turn import Turn


class NextCall(NamedTuple):
    """When a letter whose call failed is called again: by the owner's clock, by the wall clock, and
    the delay that the handler asked for; 0 if it is that of the policy."""

    at: float
    due_ms: int
    delay_ms: int


@dataclass(slots=True, eq=False)
class RequestTask:
    """One target of a request. `letters` are the ids that are left; None for all of the key. None
    of them is after `until`."""

    request: LetterRequest
    index: int
    lane: LaneName
    letters: deque[int] | None
    until: int | None
    turn: Turn | None = None
    """The letter that is on its way to a call."""
    held: list[Turn] = field(default_factory=list)
    """Messages of the same key in other queues, which wait for the end of the task."""
    resolved: int = 0
    """The number of letters that this owner redelivered or discarded."""
    failures: int = 0
    """The number of calls of the next letter that failed."""
    again_at: float | None = None
    """When the letter whose call failed is called again, at an owner that took it over."""


class RequestTasks:
    """All tasks of a shard that have not ended. For one thread at a time."""

    def __init__(self, redeliveries_max: int) -> None:
        self._redeliveries_max = redeliveries_max
        self._lanes: dict[LaneName, deque[RequestTask]] = {}
        self._begun: dict[LaneName, RequestTask] = {}
        """The redeliveries that have had a place."""
        self._placed: dict[LaneName, RequestTask] = {}
        """Those of them that have one now."""
        self._waiting: deque[RequestTask] = deque()
        """The redeliveries that wait for a place."""
        self._delayed: list[tuple[float, int, RequestTask]] = []
        """Those that wait for the time of their next attempt, as a heap."""
        self._numbers = count()
        self._discards: deque[RequestTask] = deque()

    def add(self, task: RequestTask) -> None:
        """Add a task, behind those of its lane."""
        lane = self._lanes.setdefault(task.lane, deque())
        lane.append(task)
        if len(lane) == 1:
            self._begin(task)

    def end(self, task: RequestTask) -> None:
        """Remove a task that was worked on. The next one of its lane begins."""
        lane = self._lanes[task.lane]
        assert lane.popleft() is task, "the tasks of a lane are done in order"
        if task.request.action is RequestAction.DISCARD:
            self._discards.remove(task)
        else:
            del self._begun[task.lane], self._placed[task.lane]
        if lane:
            self._begin(lane[0])
        else:
            del self._lanes[task.lane]

    def delay(self, task: RequestTask, at: float) -> None:
        """Let a redelivery wait until a time. It keeps no place meanwhile."""
        self._begun[task.lane] = task
        self._placed.pop(task.lane, None)
        heapq.heappush(self._delayed, (at, next(self._numbers), task))

    def _begin(self, task: RequestTask) -> None:
        if task.request.action is RequestAction.DISCARD:
            self._discards.append(task)
        elif task.again_at is not None:
            self.delay(task, task.again_at)
        else:
            self._waiting.append(task)

    @property
    def discard(self) -> RequestTask | None:
        """The discard to work on; None if there is none."""
        return self._discards[0] if self._discards else None

    def redeliveries(self, now: float) -> Iterator[RequestTask]:
        """Yield the redeliveries to work on. Each may end meanwhile, and others take its place."""
        due = []
        while self._delayed and self._delayed[0][0] <= now:
            due.append(heapq.heappop(self._delayed)[2])
        self._waiting.extendleft(reversed(due))
        yield from list(self._placed.values())
        while self._waiting and len(self._placed) < self._redeliveries_max:
            task = self._waiting.popleft()
            self._begun[task.lane] = self._placed[task.lane] = task
            yield task

    @property
    def due(self) -> float | None:
        """The time of the next call of a letter whose call failed; None if there is none."""
        return self._delayed[0][0] if self._delayed else None

    def redelivery(self, lane: LaneName) -> RequestTask | None:
        """Return the redelivery of a lane that has begun; None if there is none."""
        return self._begun.get(lane)
