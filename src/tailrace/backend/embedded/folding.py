"""Folding: a partition's older batch entries move from `hub.db` to the index file of their segment.

So `hub.db` stays small with any number of single pushes. A fold is a short commit of its own, under
the partition's lock, after the index is on disk. An interrupted fold is repeated and writes the
same bytes.
"""

from __future__ import annotations

import apsw

from tailrace.backend.embedded.commit_point import CommitPoint, Parts
from tailrace.backend.embedded.snapshots import select
from tailrace.backend.forking import NO_FORK
from tailrace.errors import BackendUnavailable
from tailrace.log.index import BatchEntry
from tailrace.message import Partition

FOLD_ABOVE = 8192
FOLD_COUNT = 4096
"""When a partition has more entries than the first in `hub.db`, the oldest of one segment, as many
as the second, move to its index."""


def fold(
    parts: Parts, commit_point: CommitPoint, partition: Partition, number: int, deadline: float
) -> None:
    """Fold the oldest entries of a partition once. The caller holds its lock."""
    try:
        _fold(parts, commit_point, partition, number, deadline)
    except (OSError, apsw.Error, BackendUnavailable):
        # The append itself is stored. The next append to this partition folds instead.
        return


def _fold(
    parts: Parts, commit_point: CommitPoint, partition: Partition, number: int, deadline: float
) -> None:
    with NO_FORK:
        rows = select(
            parts.database.writer,
            "SELECT e.*, s.index_bytes FROM entries e JOIN segments s"
            " ON s.partition = e.partition AND s.base = e.segment"
            " WHERE e.partition = ? ORDER BY e.base LIMIT ?",
            (number, FOLD_COUNT),
        )
    if not rows:  # Deleted meanwhile.
        return
    base, index_bytes = rows[0][-2:]
    entries = [BatchEntry(*row[1:-2]) for row in rows if row[-2] == base]
    segment = parts.segments.get(partition, number, base)
    folded_bytes = segment.fold(entries, index_bytes)
    # The records are synced too: after a crash only those with entries in hub.db are checked.
    commit_point.sync((segment.sync, segment.sync_index))
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

    commit_point.change(remove, deadline)
    parts.reach("folded")
