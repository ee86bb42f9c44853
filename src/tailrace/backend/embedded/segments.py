"""Open segments, kept for a while: at most `OPEN_MAX`, the least recently used let go first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from tailrace.backend.embedded.layout import Layout
from tailrace.log.disk import Disk
from tailrace.log.segment import Segment
from tailrace.message import Partition

OPEN_MAX = 128


class Segments:
    """Opened segments by partition number and base offset. One in use outlives its place here."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: let go of all, which threads of the parent may have been at."""
        self._open: OrderedDict[tuple[int, int], Segment] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, partition: Partition, number: int, base: int) -> Segment:
        """The segment of a partition, opened or not."""
        key = (number, base)
        with self._mutex:
            segment = self._open.get(key)
            if segment is None:
                directory = self._layout.partition(partition, number)
                segment = self._open[key] = Segment(directory, base, self._disk)
                if len(self._open) > OPEN_MAX:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(key)
            return segment

    def clear(self) -> None:
        """Let go of all."""
        with self._mutex:
            self._open.clear()
