"""What a hub is: its identity and policy, and the room it takes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import InvalidValue
from tailrace.hub import Hub
from tailrace.operations.holdings import Held, layout_of, total
from tailrace.operations.topics import list_topics


@dataclass(frozen=True, slots=True)
class HubSummary:
    """A hub. `bytes` are those of the messages, beside the database with its write-ahead log."""

    path: str
    hub_id: str
    format: int
    sync: str
    incarnation: int
    created: datetime
    topics: int
    messages: int
    bytes: int
    database_bytes: int
    wal_bytes: int
    disk_free_bytes: int
    disk_percent: int


@dataclass(frozen=True, slots=True)
class AcceptedGaps:
    """The gaps that `status` shows no more."""

    gaps: tuple[str, ...]


def hub_info(hub: Hub) -> HubSummary:
    """What the hub says of itself, and what it holds."""
    backend = embedded(hub)
    layout = layout_of(hub)
    topics = list_topics(hub)
    held = total(Held(each.messages, each.bytes) for each in topics)
    free_bytes, percent = disk_usage(layout.directory)
    info = backend.info
    return HubSummary(
        path=backend.name,
        hub_id=info.hub_id,
        format=info.format,
        sync=info.sync,
        incarnation=info.incarnation,
        created=datetime.fromtimestamp(info.created_ms / 1000, UTC),
        topics=len(topics),
        messages=held.messages,
        bytes=held.bytes,
        database_bytes=file_bytes(layout.database),
        wal_bytes=file_bytes(layout.database.with_name("hub.db-wal")),
        disk_free_bytes=free_bytes,
        disk_percent=percent,
    )


def accept_gaps(hub: Hub) -> AcceptedGaps:
    """Forget the gaps that a crash of the machine left, which `status` shows until then."""
    backend = embedded(hub)
    backend.accept_gaps()
    return AcceptedGaps(backend.info.gaps)


def embedded(hub: Hub) -> EmbeddedBackend:
    """The backend of a hub in a directory; `InvalidValue` for any other."""
    if not isinstance(hub.backend, EmbeddedBackend):
        raise InvalidValue("hub", hub.backend.name, "a hub in a directory")
    return hub.backend


def disk_usage(directory: Path) -> tuple[int, int]:
    """The bytes that are free for us on the disk of a directory, and how full it is in percent."""
    usage = shutil.disk_usage(directory)
    return usage.free, round(100 * usage.used / ((usage.used + usage.free) or 1))


def file_bytes(path: Path) -> int:
    """The length of a file, 0 where there is none. It is not opened: `hub.db` must not be."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
