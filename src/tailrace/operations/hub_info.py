"""A hub: its identity and policy, its contents, and the disk space it uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tailrace.backend.capabilities import InDirectory
from tailrace.clock import utc_time
from tailrace.hub.hub import Hub
from tailrace.operations.topic.describe import list_topics
from tailrace.topic.internal_topics import is_internal


@dataclass(frozen=True, slots=True)
class HubSummary:
    """A hub. `topics`, `messages` and `bytes` count the topics of users.

    `internal_messages` and `internal_bytes` count the topics that Tailrace keeps for itself.

    The fields from `hub_id` to `created`, and those from `database_bytes` on, are None if the
    backend does not keep the hub in a directory.
    """

    path: str
    hub_id: str | None
    format: int | None
    sync: str | None
    incarnation: int | None
    created: datetime | None
    topics: int
    messages: int
    bytes: int
    internal_messages: int
    internal_bytes: int
    database_bytes: int | None
    wal_bytes: int | None
    disk_free_bytes: int | None
    disk_percent: int | None


@dataclass(frozen=True, slots=True)
class AcceptedGaps:
    """The gaps that `status` no longer shows."""

    gaps: tuple[str, ...]


def hub_info(hub: Hub) -> HubSummary:
    """Describe a hub, and count its topics and messages."""
    backend = hub.backend
    found = list_topics(hub)
    topics = [topic for topic in found if not is_internal(topic.name)]
    internal = [topic for topic in found if is_internal(topic.name)]
    info = use = None
    if isinstance(backend, InDirectory):
        info, use = backend.info, backend.directory_use()
    return HubSummary(
        path=backend.name,
        hub_id=info and info.hub_id,
        format=info and info.format,
        sync=info and info.sync,
        incarnation=info and info.incarnation,
        created=info and utc_time(info.created_ms),
        topics=len(topics),
        messages=sum(topic.messages for topic in topics),
        bytes=sum(topic.bytes for topic in topics),
        internal_messages=sum(topic.messages for topic in internal),
        internal_bytes=sum(topic.bytes for topic in internal),
        database_bytes=use and use.database_bytes,
        wal_bytes=use and use.wal_bytes,
        disk_free_bytes=use and use.disk_free_bytes,
        disk_percent=use and use.disk_percent,
    )


def accept_gaps(hub: Hub) -> AcceptedGaps:
    """Remove the gaps that a crash of the machine left; until then `status` shows them.

    A hub that is not in a directory has none.
    """
    backend = hub.backend
    if not isinstance(backend, InDirectory):
        return AcceptedGaps(())
    backend.accept_gaps()
    return AcceptedGaps(backend.info.gaps)
