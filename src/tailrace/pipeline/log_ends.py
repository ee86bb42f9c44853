"""The end offsets of a running pipeline's commit log."""

from __future__ import annotations

import contextlib
from typing import Any

from tailrace.errors import Error
from tailrace.hub.topic import Topic
from tailrace.message import Partition


class LogEnds:
    """Reads the end offsets of the commit log, and keeps the last ones. Any thread may call it."""

    def __init__(self) -> None:
        self.log: Topic[Any] | None = None
        """The commit log; None before the run has opened it."""
        self.known: dict[Partition, int] = {}
        """The end offsets at the last read."""

    def read(self) -> dict[Partition, int]:
        """Return the end offsets now. Raises `UnknownTopic` after the deletion of the log."""
        if self.log is not None:
            self.known = {
                Partition(self.log.name, storage.index, number): end
                for storage in self.log.storage_topics
                for number, end in enumerate(storage.ends)
            }
        return self.known

    def read_unless_outage(self) -> dict[Partition, int]:
        """Return the end offsets now, or the known ones in an outage of the hub."""
        try:
            return self.read()
        except Error as error:
            if not error.retryable:
                raise
            return self.known

    def read_if_possible(self) -> dict[Partition, int]:
        """Return the end offsets now, or the known ones after any error of the hub."""
        with contextlib.suppress(Error):
            self.read()
        return self.known
