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
    """Opened segments by partition number, base offset and generation. One in use outlives its
    place here."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk
        self.after_fork()

    def after_fork(self) -> None:
        """In a forked child: let go of all, which threads of the parent may have been at."""
        self._open: OrderedDict[tuple[int, int, int], Segment] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, partition: Partition, number: int, base: int, generation: int = 0) -> Segment:
        """The segment of a partition, opened or not. One that is appended to has generation 0."""
        key = (number, base, generation)
        with self._mutex:
            segment = self._open.get(key)
            if segment is None:
                self._drop_removed()
                directory = self._layout.partition(partition, number)
                segment = self._open[key] = Segment(directory, base, self._disk, generation)
                if len(self._open) > OPEN_MAX:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(key)
            return segment

    def _drop_removed(self) -> None:
        """Let go of those whose files are gone, which take room as long as they are open."""
        for key in [key for key, segment in self._open.items() if segment.is_removed]:
            del self._open[key]

    def clear(self) -> None:
        """Let go of all."""
        with self._mutex:
            self._open.clear()
