"""Order per key while deliveries are unresolved or wait: one lane for each such key.

The first record of a lane is ready, in flight, waiting for its redelivery, or failed. The records
behind it are held back. A record without a key has a lane of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tailrace.delivery.fetched import FetchedBatch


class LaneState(Enum):
    """The state of the first record of a lane."""

    READY = "ready"
    IN_FLIGHT = "in flight"
    WAITING = "waiting"
    """To be redelivered after its delay."""
    FAILED = "failed"
    """All attempts failed. Only an acknowledgement lets the lane continue."""


class LaneEntry(NamedTuple):
    """A record in a lane. An acknowledgement of it covers the offsets from `floor` up to it."""

    batch: FetchedBatch
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
        self.entries: dict[int, LaneEntry] = {}
        """The records in the lanes, by offset."""
        self.size_bytes = 0
        self.in_flight = 0
        self.failed = 0
        self.highest = -1
        """The highest offset that was ever added."""
        self._lanes: dict[bytes | int, _Lane] = {}
        self._new: dict[bytes, None] = {}
        self._unpacked: list[int] = []
        self._ready: deque[bytes | int] = deque()
        self._waiting: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, batch: FetchedBatch, row: int, floor: int) -> None:
        """Append a record to the lane of its key."""
        offset = batch.offsets[row]
        name = batch.keys[row] or offset
        lane = self._lanes.get(name)
        if lane is None:
            self._lanes[name] = _Lane(offset)
            self._ready.append(name)
            if isinstance(name, bytes):
                self._new[name] = None
        else:
            lane.offsets.append(offset)
        self.entries[offset] = LaneEntry(batch, row, floor, name)
        self._unpacked.append(offset)
        self.highest = max(self.highest, offset)
        self.size_bytes += batch.record_bytes

    def add_in_flight(self, batch: FetchedBatch, row: int, floor: int) -> None:
        """Make the lane of a record that is in flight for the first time. Its key has no lane."""
        self.add(batch, row, floor)
        lane = self._lanes[self._ready.pop()]
        lane.state, lane.attempt = LaneState.IN_FLIGHT, 1
        self.in_flight += 1

    def __contains__(self, key: object) -> bool:
        """True if a key has a lane."""
        return key in self._lanes

    @property
    def keys(self) -> list[bytes]:
        """The keys that have a lane."""
        return [name for name in self._lanes if isinstance(name, bytes)]

    def pop_new_keys(self) -> list[bytes]:
        """Return the keys whose lanes were made since the last call."""
        new, self._new = list(self._new), {}
        return new

    @property
    def busy(self) -> bool:
        """True if a record is in flight, or was ready at the last call of `ready`."""
        return bool(self.in_flight or self._ready)

    def ready(self, now: float) -> bool:
        """True if a record can be delivered now."""
        while self._waiting and self._waiting[0][0] <= now:
            _, offset = heapq.heappop(self._waiting)
            entry = self.entries.get(offset)
            if entry is not None and self._lanes[entry.lane].state is LaneState.WAITING:
                self._lanes[entry.lane].state = LaneState.READY
                self._ready.append(entry.lane)
        return bool(self._ready)

    def pop(self) -> tuple[LaneEntry, int]:
        """Return the next ready record, which is in flight from now on, and its attempt number."""
        lane = self._lanes[self._ready.popleft()]
        lane.state = LaneState.IN_FLIGHT
        lane.attempt += 1
        self.in_flight += 1
        return self.entries[lane.offsets[0]], lane.attempt

    @property
    def idle(self) -> bool:
        """True if no record is in flight, ready, or waiting for its redelivery."""
        return not (self.in_flight or self._ready or self._waiting)

    @property
    def due(self) -> float | None:
        """The time of the next redelivery, or None."""
        return self._waiting[0][0] if self._waiting else None

    def state(self, offset: int) -> LaneState | None:
        """Return the state of the lane whose first record has this offset, or None."""
        entry = self.entries.get(offset)
        lane = None if entry is None else self._lanes[entry.lane]
        return lane.state if lane is not None and lane.offsets[0] == offset else None

    def ack(self, offset: int) -> LaneEntry | None:
        """Remove an acknowledged record and make the next of its key ready.

        Returns None if the record is neither in flight nor failed.
        """
        state = self.state(offset)
        if state is LaneState.IN_FLIGHT:
            self.in_flight -= 1
        elif state is LaneState.FAILED:
            self.failed -= 1
        else:
            return None
        entry = self.entries.pop(offset)
        self.size_bytes -= entry.batch.record_bytes
        lane = self._lanes[entry.lane]
        lane.offsets.popleft()
        if lane.offsets:
            lane.state, lane.attempt = LaneState.READY, 0
            self._ready.append(entry.lane)
        else:
            del self._lanes[entry.lane]
            if isinstance(entry.lane, bytes):
                self._new.pop(entry.lane, None)
        return entry

    def nack(self, offset: int, at: float, attempts: int | None) -> bool | None:
        """Schedule a redelivery at a time, after at most `attempts` attempts, if that is a number.

        Returns True, or False if the record had all its attempts and failed, or None if it is not
        in flight.
        """
        if self.state(offset) is not LaneState.IN_FLIGHT:
            return None
        self.in_flight -= 1
        lane = self._lanes[self.entries[offset].lane]
        if attempts is not None and lane.attempt >= attempts:
            lane.state = LaneState.FAILED
            self.failed += 1
            return False
        lane.state = LaneState.WAITING
        heapq.heappush(self._waiting, (at, offset))
        return True

    def attempt(self, offset: int) -> int:
        """Return the number of attempts of the first record of a lane."""
        return self._lanes[self.entries[offset].lane].attempt

    def behind(self, offset: int) -> int:
        """Return the number of records that are held back behind a record; 0 if it has no lane."""
        entry = self.entries.get(offset)
        return 0 if entry is None else len(self._lanes[entry.lane].offsets) - 1

    def attempted(self) -> Iterator[int]:
        """Yield the offsets that were delivered at least once."""
        return (lane.offsets[0] for lane in self._lanes.values() if lane.attempt)

    def pack(self, batch: FetchedBatch) -> None:
        """Free the memory of a batch, the last one from which records were added: copy those that
        are still in lanes."""
        added, self._unpacked = self._unpacked, []
        wanted = [self.entries[offset].row for offset in added if offset in self.entries]
        if len(wanted) == len(batch):
            return
        packed = batch.select(wanted)
        self.size_bytes += (packed.record_bytes - batch.record_bytes) * len(wanted)
        for row, offset in enumerate(packed.offsets):
            self.entries[offset] = self.entries[offset]._replace(batch=packed, row=row)
