"""Folding: a partition's older batch entries leave `hub.db` for the index file of their segment.

So `hub.db` stays small however many single pushes there are. A fold is a short commit of its
own, under the partition's lock, after the index is on disk. One that is interrupted is done
again and writes the same bytes.
"""

from __future__ import annotations

import apsw

from tailrace.backend.embedded.database import select
from tailrace.backend.embedded.forking import NO_FORK
from tailrace.backend.embedded.publisher import Parts, Publisher
from tailrace.errors import BackendUnavailable
from tailrace.log.index import BatchEntry
from tailrace.message import Partition

FOLD_ABOVE = 8192
FOLD_COUNT = 4096
"""Above so many entries of a partition in `hub.db`, the oldest so many of one segment go to its
index."""


def fold(
    parts: Parts, publisher: Publisher, partition: Partition, number: int, deadline: float
) -> None:
    """Fold the oldest entries of a partition once. The caller holds its lock."""
    try:
        _fold(parts, publisher, partition, number, deadline)
    except (OSError, apsw.Error, BackendUnavailable):
        # What was appended is stored. The next append to this partition folds instead.
        return


def _fold(
    parts: Parts, publisher: Publisher, partition: Partition, number: int, deadline: float
) -> None:
    with NO_FORK:
        rows = select(
            parts.database.writer,
            "SELECT e.*, s.index_bytes FROM entries e JOIN segments s"
            " ON s.partition = e.partition AND s.base = e.segment"
            " WHERE e.partition = ? ORDER BY e.base LIMIT ?",
            (number, FOLD_COUNT),
        )
    if not rows:  # deleted a moment ago
        return
    base, index_bytes = rows[0][-2:]
    entries = [BatchEntry(*row[1:-2]) for row in rows if row[-2] == base]
    segment = parts.segments.get(partition, number, base)
    folded_bytes = segment.fold(entries, index_bytes)
    # The records too: after a crash only those with entries in hub.db are looked at.
    publisher.sync((segment.sync, segment.sync_index))
    parts.reach("fold-written")

    def remove(connection: apsw.Connection) -> None:
        connection.execute(
            "DELETE FROM entries WHERE partition = ? AND base <= ?", (number, entries[-1].base)
        )
        connection.execute(
            "UPDATE segments SET index_bytes = ? WHERE partition = ? AND base = ?",
            (folded_bytes, number, base),
        )
        connection.execute(
            "UPDATE partitions SET entries = entries - ? WHERE id = ?", (len(entries), number)
        )

    publisher.change(remove, deadline)
    parts.reach("folded")
