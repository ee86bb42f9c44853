"""The lanes of one partition, with the records that they hold back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tailrace.delivery.fetched import FetchedBatch
from tailrace.delivery.key_lanes import KeyLanes, LaneName, LaneState


class LaneEntry(NamedTuple):
    """A record in a lane. An acknowledgement of it covers the offsets from `floor` up to it."""

    batch: FetchedBatch
    row: int
    floor: int
    lane: LaneName


class Lanes(KeyLanes):
    """All lanes of a unit, by offset. Pure, and for one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[int, LaneEntry] = {}
        """The records in the lanes, by offset."""
        self.size_bytes = 0
        self.highest = -1
        """The highest offset that was ever added."""
        self._new: dict[bytes, None] = {}
        self._unpacked: list[int] = []

    def add(self, batch: FetchedBatch, row: int, floor: int) -> None:
        """Append a record to the lane of its key."""
        offset = batch.offsets[row]
        name = batch.keys[row] or offset
        if isinstance(name, bytes) and name not in self:
            self._new[name] = None
        self.append(name, offset)
        self.entries[offset] = LaneEntry(batch, row, floor, name)
        self._unpacked.append(offset)
        self.highest = max(self.highest, offset)
        self.size_bytes += batch.record_bytes

    def add_in_flight(self, batch: FetchedBatch, row: int, floor: int) -> None:
        """Make the lane of a record that is in flight for the first time. Its key has no lane."""
        self.add(batch, row, floor)
        self._ready.rotate(1)
        self.pop_ready()

    @property
    def keys(self) -> list[bytes]:
        """The keys that have a lane."""
        return [name for name in self.names if isinstance(name, bytes)]

    def pop_new_keys(self) -> list[bytes]:
        """Return the keys whose lanes were made since the last call."""
        new, self._new = list(self._new), {}
        return new

    def pop(self) -> tuple[LaneEntry, int]:
        """Return the next ready record, which is in flight from now on, and its attempt number."""
        name = self.pop_ready()
        return self.entries[self.head(name)], self._lanes[name].attempt

    def state(self, offset: int) -> LaneState | None:
        """Return the state of the lane whose first record has this offset, or None."""
        entry = self.entries.get(offset)
        lane = None if entry is None else self._lanes[entry.lane]
        return lane.state if lane is not None and lane.ids[0] == offset else None

    def ack(self, offset: int) -> LaneEntry | None:
        """Remove an acknowledged record and make the next of its key ready.

        Returns None if the record is neither in flight nor failed.
        """
        if self.state(offset) not in (LaneState.IN_FLIGHT, LaneState.FAILED):
            return None
        entry = self.entries.pop(offset)
        self.size_bytes -= entry.batch.record_bytes
        self.remove_head(entry.lane)
        if isinstance(entry.lane, bytes) and entry.lane not in self:
            self._new.pop(entry.lane, None)
        return entry

    def nack(self, offset: int, at: float, attempts: int | None) -> bool | None:
        """Schedule a redelivery at a time, after at most `attempts` attempts, if that is a number.

        Returns True, or False if the record had all its attempts and failed, or None if it is not
        in flight.
        """
        if self.state(offset) is not LaneState.IN_FLIGHT:
            return None
        name = self.entries[offset].lane
        if attempts is not None and self._lanes[name].attempt >= attempts:
            self.fail(name)
            return False
        self.wait(name, at)
        return True

    def attempt(self, offset: int) -> int:
        """Return the number of attempts of the first record of a lane."""
        return self._lanes[self.entries[offset].lane].attempt

    def behind(self, offset: int) -> int:
        """Return the number of records that are held back behind a record; 0 if it has no lane."""
        entry = self.entries.get(offset)
        return 0 if entry is None else self.count(entry.lane) - 1

    def attempted(self) -> Iterator[int]:
        """Yield the offsets that were delivered at least once."""
        return (lane.ids[0] for lane in self._lanes.values() if lane.attempt)

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
