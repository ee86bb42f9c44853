"""Which sessions share a group, for people to see. Nothing is decided by it.

A session is an entry ``group-member/GROUP/SESSION`` of the store while it is subscribed. Those of a
process that died are still there; that nobody holds the process's name tells.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Final, NamedTuple

import msgspec

from tailrace.backend.contract import Backend, Change
from tailrace.group.probing import HOLDS

MEMBERS: Final = "group-member/"


class Presence(NamedTuple):
    """A session that is subscribed, by the store. `owner` says whose process it is; None when that
    is dead. That process has given no sign of life for `silent_s`."""

    session: str
    process: str
    owner: str | None
    since: datetime
    silent_s: float


class _Entry(msgspec.Struct, frozen=True):
    process: str
    since_ms: int


_decode = msgspec.json.Decoder(_Entry).decode


def enter(backend: Backend, group: str, session: str, process: str, now_ms: int) -> None:
    """Show a session, and no longer those of the group whose processes are dead."""
    dead = [member.session for member in members(backend, group) if member.owner is None]
    prefix = members_prefix(group)
    writes: dict[str, bytes | None] = {prefix + name: None for name in dead}
    writes[prefix + session] = msgspec.json.encode(_Entry(process, now_ms))
    backend.store.commit(Change(writes=writes))


def leave(backend: Backend, group: str, session: str) -> None:
    """Show a session no longer."""
    backend.store.commit(Change(writes={members_prefix(group) + session: None}))


def members(backend: Backend, group: str) -> list[Presence]:
    """The sessions of a group, the longest there first."""
    prefix = members_prefix(group)

    @cache
    def owner(process: str) -> tuple[str | None, float]:
        return backend.holder(HOLDS + process), backend.silent_s(HOLDS + process) or 0.0

    found = []
    for key, value, _ in backend.store.scan(prefix):
        process, since_ms = msgspec.structs.astuple(_decode(value or b""))
        since = datetime.fromtimestamp(since_ms / 1000, UTC)
        whose, silent_s = owner(process)
        found.append(Presence(key.removeprefix(prefix), process, whose, since, silent_s))
    return sorted(found, key=lambda each: (each.since, each.session))


def members_prefix(group: str) -> str:
    """What the store entries of a group's sessions begin with."""
    return f"{MEMBERS}{group}/"
