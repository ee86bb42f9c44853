"""A cache of open segments: at most `OPEN_MAX`, the least recently used is closed first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tailrace.backend.embedded.layout import Layout
from tailrace.log.disk import Disk
from tailrace.log.segment import Segment
from tailrace.message import Partition

OPEN_MAX = 128


class Segments:
    """Open segments by partition number, base offset and generation. A segment that is in use stays
    open after it leaves the cache."""

    def __init__(self, layout: Layout, disk: Disk, kind: type[Segment] = Segment) -> None:
        self._layout = layout
        self._disk = disk
        self._kind = kind
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: drop all segments, which threads of the parent may have been using."""
        self._open: OrderedDict[tuple[int, int, int], Segment] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, partition: Partition, number: int, base: int, generation: int = 0) -> Segment:
        """Return the segment of a partition; its files are opened on first use.

        A segment that takes appends has generation 0.
        """
        key = (number, base, generation)
        with self._mutex:
            segment = self._open.get(key)
            if segment is None:
                self._drop_removed()
                directory = self._layout.partition(partition, number)
                segment = self._open[key] = self._kind(directory, base, self._disk, generation)
                if len(self._open) > OPEN_MAX:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(key)
            return segment

    def _drop_removed(self) -> None:
        """Drop segments whose files were removed: open files keep their disk space."""
        for key in [key for key, segment in self._open.items() if segment.is_removed]:
            del self._open[key]

    def clear(self) -> None:
        """Drop all segments."""
        with self._mutex:
            self._open.clear()
