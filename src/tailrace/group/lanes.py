"""Order per key while more than one delivery is under way: one lane for each key that is.

The first of a lane is in somebody's hands, or waits to come again, or has failed; those behind it
are held back. A record without a key has a lane of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tailrace.group.chunk import Chunk


class LaneState(Enum):
    """What the first of a lane is about."""

    READY = "ready"
    IN_HAND = "in hand"
    WAITING = "waiting"
    """To come again when its time has come."""
    FAILED = "failed"
    """Its attempts are used up; only an acknowledgement lets the lane go on."""


class Held(NamedTuple):
    """A record in a lane. To acknowledge it is to acknowledge the offsets from `floor` up to it."""

    chunk: Chunk
    row: int
    floor: int
    lane: bytes | int


class _Lane:
    __slots__ = ("attempt", "offsets", "state")

    def __init__(self, offset: int) -> None:
        self.offsets = deque([offset])
        self.state = LaneState.READY
        self.attempt = 0


class Lanes:
    """All lanes of a unit. Pure, and for one thread at a time."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        """What is in the lanes, by offset."""
        self.size_bytes = 0
        self.in_hand = 0
        self.failed = 0
        self._lanes: dict[bytes | int, _Lane] = {}
        self._ready: deque[bytes | int] = deque()
        self._waiting: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.held)

    def add(self, chunk: Chunk, index: int, floor: int) -> None:
        """Put a record behind those of its key."""
        offset = chunk.offsets[index]
        name = chunk.keys[index] or offset
        lane = self._lanes.get(name)
        if lane is None:
            self._lanes[name] = _Lane(offset)
            self._ready.append(name)
        else:
            lane.offsets.append(offset)
        self.held[offset] = Held(chunk, index, floor, name)
        self.size_bytes += chunk.record_bytes

    def ready(self, now: float) -> bool:
        """Whether something may be handed out."""
        while self._waiting and self._waiting[0][0] <= now:
            _, offset = heapq.heappop(self._waiting)
            held = self.held.get(offset)
            if held is not None and self._lanes[held.lane].state is LaneState.WAITING:
                self._lanes[held.lane].state = LaneState.READY
                self._ready.append(held.lane)
        return bool(self._ready)

    def take(self) -> tuple[Held, int]:
        """Hand out what is ready, and the number of this attempt."""
        lane = self._lanes[self._ready.popleft()]
        lane.state = LaneState.IN_HAND
        lane.attempt += 1
        self.in_hand += 1
        return self.held[lane.offsets[0]], lane.attempt

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand, nothing is ready, and nothing comes again."""
        return not (self.in_hand or self._ready or self._waiting)

    @property
    def due(self) -> float | None:
        """When the next one comes again."""
        return self._waiting[0][0] if self._waiting else None

    def state(self, offset: int) -> LaneState | None:
        """That of the lane whose first this is; None for any other offset."""
        held = self.held.get(offset)
        lane = None if held is None else self._lanes[held.lane]
        return lane.state if lane is not None and lane.offsets[0] == offset else None

    def ack(self, offset: int) -> Held | None:
        """It is done, and the next of its key may go; None when it was neither in hand nor
        failed."""
        state = self.state(offset)
        if state is LaneState.IN_HAND:
            self.in_hand -= 1
        elif state is LaneState.FAILED:
            self.failed -= 1
        else:
            return None
        held = self.held.pop(offset)
        self.size_bytes -= held.chunk.record_bytes
        lane = self._lanes[held.lane]
        lane.offsets.popleft()
        if lane.offsets:
            lane.state, lane.attempt = LaneState.READY, 0
            self._ready.append(held.lane)
        else:
            del self._lanes[held.lane]
        return held

    def nack(self, offset: int, at: float, attempts: int) -> bool | None:
        """It is not done: it comes again at that time (True), unless it had all its attempts
        (False). None when it was not in hand."""
        if self.state(offset) is not LaneState.IN_HAND:
            return None
        self.in_hand -= 1
        lane = self._lanes[self.held[offset].lane]
        if lane.attempt >= attempts:
            lane.state = LaneState.FAILED
            self.failed += 1
            return False
        lane.state = LaneState.WAITING
        heapq.heappush(self._waiting, (at, offset))
        return True

    def attempted(self) -> Iterator[int]:
        """The offsets that were handed out at least once."""
        return (lane.offsets[0] for lane in self._lanes.values() if lane.attempt)

    def pack(self, chunk: Chunk) -> None:
        """Let go of a chunk: copy what is held of it."""
        wanted = [index for index, offset in enumerate(chunk.offsets) if offset in self.held]
        if len(wanted) == len(chunk):
            return
        packed = chunk.some(wanted)
        self.size_bytes += (packed.record_bytes - chunk.record_bytes) * len(wanted)
        for index, offset in enumerate(packed.offsets):
            held = self.held[offset]
            self.held[offset] = held._replace(chunk=packed, row=index)
