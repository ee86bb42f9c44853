"""Opening a hub: creating it, refusing a hub that cannot be opened, starting a new incarnation.

A hub's *incarnation* goes up when the machine has crashed or restarted since the hub was last
open (the kernel's boot id differs from the stored one). Under `sync="none"` a crash may have
lost the newest commits and bytes, although they were acknowledged. Therefore every partition
continues in a new segment at the next multiple of 2**32, and a partition that is created begins at
that of its incarnation (its topic may be one that the crash removed), so that no offset is ever
used twice. Store versions, which are the epochs of fences, jump as well. Batches of active segments
whose bytes did not survive become gaps, which are reported.
"""

from __future__ import annotations

import logging
import shlex
import uuid
from pathlib import Path
from typing import Any

import apsw

from tailrace.backend.capabilities import HubInfo
from tailrace.backend.embedded.database import SCHEMA
from tailrace.backend.embedded.layout import Layout
from tailrace.backend.embedded.snapshots import select
from tailrace.errors import IncompatibleHub, InvalidValue
from tailrace.log.disk import Disk
from tailrace.log.index import BatchEntry
from tailrace.log.segment import Segment
from tailrace.message import Partition

FORMAT = 2
MIGRATIONS = {
    1: "ALTER TABLE segments ADD COLUMN generation INTEGER NOT NULL DEFAULT 0",
}
"""The statement that upgrades a hub of each format to the next."""

SYNC_POLICIES = {"batch": "full", "none": "normal"}
"""SQLite's `synchronous` for each sync policy of a hub."""

INCARNATION_OFFSETS = 2**32
INCARNATION_VERSIONS = 2**40
GAPS_RECORDED_MAX = 1000
"""The number of gaps of one crash that are recorded one by one."""

logger = logging.getLogger("tailrace.hub")


def boot_id() -> str:
    """Return the kernel's id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_info(connection: apsw.Connection, directory: Path) -> HubInfo | None:
    """Return the identity and policy of a hub, None if there is no hub yet; refuses a newer
    format."""
    if not select(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'meta'"):
        return None
    meta: dict[str, Any] = dict(select(connection, "SELECT name, value FROM meta"))
    if meta["format"] > FORMAT:
        raise IncompatibleHub(
            f"{directory} is a hub of format {meta['format']},"
            f" this Tailrace supports formats up to {FORMAT}",
            "open it with the version of Tailrace that created it, or a newer one",
        )
    return HubInfo(
        *(meta["hub_id"], meta["format"], meta["sync"], meta["incarnation"], meta["created_ms"]),
        gaps=tuple(meta["gaps"].splitlines()),
    )


def create(connection: apsw.Connection, sync: str, boot: str, now_ms: int) -> None:
    """Create the tables of a new hub. The caller holds the commit lock."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(SCHEMA)
    meta = {
        "format": FORMAT,
        "hub_id": uuid.uuid4().hex,
        "sync": sync,
        "boot": boot,
        "incarnation": 1,
        "created_ms": now_ms,
        "version": 0,
        "floor": 0,
        "touched": 0,
        "gaps": "",
    }
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    connection.execute("COMMIT")


def migrate(connection: apsw.Connection, stored: int) -> None:
    """Upgrade a hub of an older format to this one, in one step. The caller holds the commit
    lock."""
    if stored == FORMAT:
        return
    connection.execute("BEGIN IMMEDIATE")
    for number in range(stored, FORMAT):
        connection.execute(MIGRATIONS[number])
    connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (FORMAT,))
    connection.execute("COMMIT")


def check_current(stored: int, directory: Path) -> None:
    """Raise `IncompatibleHub` for an older format, which only a process that may write upgrades."""
    if stored != FORMAT:
        raise IncompatibleHub(
            f"{directory} is a hub of format {stored}, and this Tailrace reads format {FORMAT}",
            "open it once for writing, which upgrades it:"
            f" tailrace --hub {shlex.quote(str(directory))} status",
        )


def check_sync(asked: str | None, stored: str | None = None) -> None:
    """Raise `InvalidValue` for an unknown policy, or for another than the hub's own."""
    if asked is not None and asked not in SYNC_POLICIES:
        raise InvalidValue("sync", asked, " or ".join(sorted(SYNC_POLICIES)))
    if asked is not None and stored is not None and asked != stored:
        raise InvalidValue(
            "sync",
            asked,
            f"{stored}: a hub's sync policy is fixed when the hub is created",
            "omit sync to open this hub",
        )


def begin_incarnation(
    connection: apsw.Connection, layout: Layout, disk: Disk, boot: str, now_ms: int
) -> None:
    """After a restart of the machine, start a new incarnation, and record the gaps.

    The caller holds the commit lock and no other process has the hub open. On the same boot nothing
    changes.
    """
    ((stored,),) = select(connection, "SELECT value FROM meta WHERE name = 'boot'")
    if stored == boot:
        return
    connection.execute("PRAGMA synchronous = full")
    connection.execute("BEGIN IMMEDIATE")
    ((sync,),) = select(connection, "SELECT value FROM meta WHERE name = 'sync'")
    gaps = _drop_lost_batches(connection, layout, disk) if sync == "none" else []
    connection.execute(
        "UPDATE segments SET (end_offset, bytes, records, appended_ms) ="
        " (SELECT p.end_offset, p.bytes, p.records, ? FROM partitions p WHERE p.id = partition)"
        " WHERE end_offset IS NULL",
        (now_ms,),
    )
    connection.execute(
        "UPDATE partitions SET segment = NULL, next_offset = (next_offset / ?1 + 1) * ?1"
        " WHERE sealed = 0",
        (INCARNATION_OFFSETS,),
    )
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'incarnation'")
    connection.execute(
        "UPDATE meta SET value = (value / ?1 + 1) * ?1 WHERE name = 'version'",
        (INCARNATION_VERSIONS,),
    )
    connection.execute("UPDATE meta SET value = ? WHERE name = 'boot'", (boot,))
    recorded = [*gaps[:GAPS_RECORDED_MAX], *_more_gaps(len(gaps) - GAPS_RECORDED_MAX)]
    connection.execute(
        "UPDATE meta SET value = ltrim(value || ?, char(10)) WHERE name = 'gaps'",
        ("".join(f"\n{gap}" for gap in recorded),),
    )
    connection.execute("COMMIT")
    for gap in recorded:
        logger.warning("%s", gap)


def accept_gaps(connection: apsw.Connection) -> None:
    """Remove the recorded gaps, inside a commit."""
    connection.execute("UPDATE meta SET value = '' WHERE name = 'gaps'")


def _more_gaps(more: int) -> list[str]:
    return [f"{more} more batches did not survive the machine's crash"] if more > 0 else []


def _drop_lost_batches(connection: apsw.Connection, layout: Layout, disk: Disk) -> list[str]:
    """Remove the entries of active segments whose bytes a crash has lost, and return them in
    words."""
    gaps = []
    rows = select(
        connection,
        "SELECT p.topic, p.storage, p.number, e.* FROM partitions p JOIN entries e"
        " ON e.partition = p.id AND e.segment = p.segment ORDER BY e.partition, e.base",
    )
    for topic, storage, index, number, *columns, base in rows:
        partition = Partition(topic, storage, index)
        entry = BatchEntry(*columns)
        segment = Segment(layout.partition(partition, number), base, disk)
        damages = segment.verify([entry])
        if not damages:
            continue
        last = entry.base + entry.records - 1
        gaps.append(
            f"{partition}@{entry.base} to @{last} did not survive the machine's crash:"
            f" {damages[0].reason}"
        )
        connection.execute(
            "DELETE FROM entries WHERE partition = ? AND base = ?", (number, entry.base)
        )
        # The segment takes no more appends, so `records` only counts those that can be read.
        connection.execute(
            "UPDATE partitions SET entries = entries - 1, records = records - ? WHERE id = ?",
            (entry.records, number),
        )
    return gaps
