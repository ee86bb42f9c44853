"""The sessions of a group, for people. Nothing is decided by them.

A subscribed session has a store entry ``group-member/GROUP/SESSION``. Entries of a dead process
remain until another session joins. A process is dead if nobody holds its name.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Change
from tailrace.clock import utc_time

MEMBERS: Final = "group-member/"
HOLDS: Final = "process/"
"""A process holds this prefix with its name while one of its consumers is in a group."""


class Presence(NamedTuple):
    """A subscribed session. `owner` describes its process; None if the process is dead. `silent_s`
    is the time since the last heartbeat of the process."""

    session: str
    process: str
    owner: str | None
    since: datetime
    silent_s: float


class _PresenceEntry(msgspec.Struct, frozen=True):
    process: str
    since_ms: int


_decode = msgspec.json.Decoder(_PresenceEntry).decode


def enter(backend: Backend, group: str, session: str, process: str, now_ms: int) -> None:
    """Add a session, and remove those of the group whose processes are dead."""
    dead = [member.session for member in members(backend, group) if member.owner is None]
    prefix = members_prefix(group)
    writes: dict[str, bytes | None] = {prefix + name: None for name in dead}
    writes[prefix + session] = msgspec.json.encode(_PresenceEntry(process, now_ms))
    backend.store.commit(Change(writes=writes))


def leave(backend: Backend, group: str, session: str) -> None:
    """Remove a session."""
    backend.store.commit(Change(writes={members_prefix(group) + session: None}))


def members(backend: Backend, group: str) -> list[Presence]:
    """Return the sessions of a group, the oldest first."""
    prefix = members_prefix(group)

    @cache
    def owner(process: str) -> tuple[str | None, float]:
        return backend.holder(HOLDS + process), backend.silent_s(HOLDS + process) or 0.0

    found = []
    for key, value, _ in backend.store.scan(prefix):
        process, since_ms = msgspec.structs.astuple(_decode(value or b""))
        since = utc_time(since_ms)
        description, silent_s = owner(process)
        found.append(Presence(key.removeprefix(prefix), process, description, since, silent_s))
    return sorted(found, key=lambda each: (each.since, each.session))


def members_prefix(group: str) -> str:
    """Return the key prefix of a group's sessions."""
    return f"{MEMBERS}{group}/"
