"""Order per key: one lane for each key that has unresolved messages.

A lane holds the ids of its messages, in order, and no payloads. The first message of a lane is
ready, in flight, waiting for its next attempt, or failed. The messages behind it are held back. A
message without a key has a lane of its own.

The ids are the caller's. They rise within a lane: a group uses offsets, a subscription's shard uses
numbers that name a partition and an offset. An id can be *expected*: its message is being appended
to a log, and has no number before the commit. An expected message holds a lane as any other does.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Final, TypeAlias

LaneName: TypeAlias = "bytes | int"
"""A key, or the id of a message without a key."""


_FEW: Final = 8
"""The most ids that a lane keeps in a list, whose first one is slow to remove from many."""


class LaneState(Enum):
    """The state of the first message of a lane."""

    READY = "ready"
    IN_FLIGHT = "in flight"
    WAITING = "waiting"
    """To be delivered again after its delay."""
    FAILED = "failed"
    """All attempts failed. The lane continues when the message is acknowledged or released."""
    EXPECTED = "expected"
    """Its id is not known yet."""


class _Lane:
    __slots__ = ("attempt", "expected", "ids", "removed", "state")

    def __init__(self) -> None:
        self.ids: deque[int] | list[int] = []
        """A deque takes 600 bytes also for one id, and most lanes have one."""
        self.removed: set[int] | None = None
        """Those of `ids` that were removed from behind the first one."""
        self.state = LaneState.EXPECTED
        self.attempt = 0
        self.expected = 0

    @property
    def count(self) -> int:
        return len(self.ids) + self.expected - (len(self.removed) if self.removed else 0)

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids."""
        self.ids.extend(ids)
        if len(self.ids) > _FEW and isinstance(self.ids, list):
            self.ids = deque(self.ids)

    def pop(self) -> int:
        """Remove the first id, and those after it that were removed before."""
        id = self._pop_first()
        while self.removed and self.ids and self.ids[0] in self.removed:
            self.removed.remove(self._pop_first())
        return id

    def _pop_first(self) -> int:
        return self.ids.pop(0) if isinstance(self.ids, list) else self.ids.popleft()


class KeyLanes:
    """All lanes of a unit, or of one queue of a shard. Pure, and for one thread at a time."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.failed = 0
        self.size = 0
        """The number of messages in all lanes, expected ones included."""
        self._lanes: dict[LaneName, _Lane] = {}
        self._ready: deque[LaneName] = deque()
        self._waiting: list[tuple[float, int, LaneName]] = []

    def __len__(self) -> int:
        return self.size

    def __contains__(self, name: object) -> bool:
        """True if a key has a lane."""
        return name in self._lanes

    @property
    def names(self) -> Iterable[LaneName]:
        """The names of all lanes, the oldest first."""
        return self._lanes.keys()

    # Messages that enter.

    def append(self, name: LaneName, id: int) -> None:
        """Append a message to a lane. The first message of a lane is ready."""
        self.extend(name, (id,))

    def extend(self, name: LaneName, ids: Iterable[int]) -> None:
        """Append messages to a lane, in order."""
        lane = self._lane(name)
        before = len(lane.ids)
        lane.extend(ids)
        self.size += len(lane.ids) - before
        if lane.state is LaneState.EXPECTED and lane.ids:
            self._make_ready(name, lane)

    def expect(self, name: LaneName) -> None:
        """Append a message whose id is not known yet."""
        self._lane(name).expected += 1
        self.size += 1

    def arrive(self, name: LaneName, id: int, at: float | None = None) -> None:
        """Give the first expected message of a lane its id. If it is the first of its lane, it is
        ready, or waits until a time."""
        lane = self._lanes[name]
        assert lane.expected, "only an expected message arrives"
        lane.expected -= 1
        lane.extend((id,))
        if lane.state is not LaneState.EXPECTED:
            return
        if at is None:
            self._make_ready(name, lane)
        else:
            self._make_wait(name, lane, at)

    # Turns.

    @property
    def busy(self) -> bool:
        """True if a message is in flight, or was ready at the last call of `ready`."""
        return bool(self.in_flight or self._ready)

    @property
    def idle(self) -> bool:
        """True if no message is in flight, ready, or waiting for its next attempt."""
        return not (self.in_flight or self._ready or self._waiting)

    @property
    def due(self) -> float | None:
        """The time of the next attempt of a message that waits, or None."""
        return self._waiting[0][0] if self._waiting else None

    def ready(self, now: float) -> bool:
        """True if a message can be delivered now."""
        while self._waiting and self._waiting[0][0] <= now:
            _, id, name = heapq.heappop(self._waiting)
            lane = self._lanes.get(name)
            if lane is not None and lane.state is LaneState.WAITING and lane.ids[0] == id:
                self._make_ready(name, lane)
        return bool(self._ready)

    def pop_ready(self) -> LaneName:
        """Return the lane that is ready longest. Its first message is in flight from now on."""
        name = self._ready.popleft()
        lane = self._lanes[name]
        lane.state = LaneState.IN_FLIGHT
        lane.attempt += 1
        self.in_flight += 1
        return name

    # The first message of a lane.

    def lane_state(self, name: LaneName) -> LaneState | None:
        """Return the state of a lane; None if there is none."""
        lane = self._lanes.get(name)
        return None if lane is None else lane.state

    def head(self, name: LaneName) -> int:
        """Return the id of the first message of a lane, which is not expected."""
        return self._lanes[name].ids[0]

    def followers(self, name: LaneName, count: int) -> list[int]:
        """Return the ids of the messages behind the first one of a lane, at most `count`."""
        return list(islice(self._lanes[name].ids, 1, 1 + max(0, count)))

    def count(self, name: LaneName) -> int:
        """Return the number of messages in a lane, expected ones included; 0 if there is none."""
        lane = self._lanes.get(name)
        return 0 if lane is None else lane.count

    def reaches(self, name: LaneName, id: int) -> bool:
        """True if a lane has, or had since it began, this message or a later one whose id is
        known."""
        lane = self._lanes.get(name)
        return lane is not None and bool(lane.ids) and id <= lane.ids[-1]

    def remove(self, name: LaneName, id: int) -> None:
        """Remove a message of a lane whose first message failed. If it is the first, the next one
        is ready."""
        lane = self._lanes[name]
        if lane.ids[0] == id:
            self.remove_head(name)
        else:
            lane.removed = lane.removed or set()
            lane.removed.add(id)
            self.size -= 1

    def remove_head(self, name: LaneName) -> int:
        """Remove the first message of a lane, which is in flight or failed. The next one is
        ready."""
        lane = self._lanes[name]
        if lane.state is LaneState.IN_FLIGHT:
            self.in_flight -= 1
        else:
            assert lane.state is LaneState.FAILED, f"a message that is {lane.state.value} stays"
            self.failed -= 1
        self.size -= 1
        id = lane.pop()
        lane.attempt = 0
        if lane.ids:
            self._make_ready(name, lane)
        elif lane.expected:
            lane.state = LaneState.EXPECTED
        else:
            del self._lanes[name]
        return id

    def wait(self, name: LaneName, at: float) -> None:
        """Let the first message of a lane, which is in flight, wait for its next attempt."""
        self._make_wait(name, self._landed(name), at)

    def fail(self, name: LaneName) -> None:
        """Let the first message of a lane, which is in flight, block its lane."""
        self._landed(name).state = LaneState.FAILED
        self.failed += 1

    def release(self, name: LaneName) -> None:
        """Make the first message of a lane ready that failed or waits."""
        lane = self._lanes[name]
        if lane.state is LaneState.FAILED:
            self.failed -= 1
        else:
            assert lane.state is LaneState.WAITING, f"{lane.state.value}: there is no reason"
        self._make_ready(name, lane)

    def _landed(self, name: LaneName) -> _Lane:
        lane = self._lanes[name]
        assert lane.state is LaneState.IN_FLIGHT, f"a message that is {lane.state.value}"
        self.in_flight -= 1
        return lane

    def _lane(self, name: LaneName) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        return lane

    def _make_wait(self, name: LaneName, lane: _Lane, at: float) -> None:
        lane.state = LaneState.WAITING
        heapq.heappush(self._waiting, (at, lane.ids[0], name))

    def _make_ready(self, name: LaneName, lane: _Lane) -> None:
        lane.state = LaneState.READY
        self._ready.append(name)
