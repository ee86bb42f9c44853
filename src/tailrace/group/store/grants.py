"""The store entries of a group's leader and of its grants.

    group-leader/GROUP        the process that leads; the version is its term
    group-grant/GROUP/UNIT    the borrower that has the unit; the version is its epoch

A grant is a commit that expects the leader's own entry and the basis of the decision, and that
raises the unit's fence to the epoch of the grant.
"""

from __future__ import annotations

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, Entry
from tailrace.errors import BackendUnavailable, Conflict
from tailrace.group.protocol.actions import CommitGrants, Elect
from tailrace.group.protocol.events import (
    Elected,
    GrantsCommitted,
    GrantsRead,
    GrantsRefused,
    GrantsUnknown,
    LeaderFound,
)
from tailrace.group.protocol.unit import LeaderEntry, StoredGrant
from tailrace.group.store.definition import LEADERS, grant_key, unit_fence
from tailrace.group.store.unit_source import UnitSource


class _Leader(msgspec.Struct, frozen=True):
    process: str


class _Grant(msgspec.Struct, frozen=True):
    borrower: str
    process: str


_encode = msgspec.json.Encoder().encode
_decode_leader = msgspec.json.Decoder(_Leader).decode
_decode_grant = msgspec.json.Decoder(_Grant).decode


def find_leader(backend: Backend, group: str) -> LeaderFound:
    """Return the leader of a group."""
    entry = backend.store.get(LEADERS + group)
    return LeaderFound(group, None) if entry is None else leader_found(entry)


def leader_found(entry: Entry) -> LeaderFound:
    """Return the leader in an entry under `LEADERS`, which may be removed (see `Store.watch`)."""
    group = entry.key.removeprefix(LEADERS)
    if entry.value is None:
        return LeaderFound(group, None, entry.version)
    return LeaderFound(group, LeaderEntry(_decode_leader(entry.value).process, entry.version))


def led_by(backend: Backend, process: str) -> tuple[tuple[str, int], ...]:
    """Return the groups that a process leads, with terms."""
    found = [leader_found(entry) for entry in backend.store.scan(LEADERS)]
    return tuple(
        (each.group, each.entry.term)
        for each in found
        if each.entry is not None and each.entry.process == process
    )


def elect(
    backend: Backend, process: str, action: Elect, source: UnitSource
) -> Elected | LeaderFound:
    """Make a process the leader of a group of a source, unless another process was faster.

    Raises `UnknownGroup`.
    """
    group = action.group
    key = LEADERS + group
    defined_by, version = source.defined_by(group)
    change = Change(
        expect={key: action.version, defined_by: version},
        writes={key: _encode(_Leader(process))},
    )
    try:
        term = backend.store.commit(change)
    except Conflict:
        return find_leader(backend, group)
    return Elected(group, term, standing_grants(backend, group))


def resign(backend: Backend, group: str, term: int) -> None:
    """Remove the leader of a group, if its term is still this one."""
    key = LEADERS + group
    try:
        backend.store.commit(Change(expect={key: term}, writes={key: None}))
    except Conflict:
        return


def standing_grants(backend: Backend, group: str) -> tuple[StoredGrant, ...]:
    """Return the present grants of a group, by unit."""
    prefix, fences = grant_key(group, ""), FENCES + unit_fence(group, "")
    entries = backend.store.scan(prefix)
    # Fences are read after the grants: a grant that is fenced by now is seen to be fenced.
    epochs = {entry.key.removeprefix(fences): entry.version for entry in backend.store.scan(fences)}
    found = []
    for key, value, version in entries:
        unit, grant = key.removeprefix(prefix), _decode_grant(value or b"")
        fenced = epochs.get(unit, version) > version
        found.append(StoredGrant(unit, grant.borrower, grant.process, version, fenced))
    return tuple(found)


def read_grants(backend: Backend, group: str, term: int) -> GrantsRead:
    """Return the present grants of a group, for the leader of a term."""
    grants = standing_grants(backend, group)
    # Read last: if the term has not ended by now, no other leader has granted anything before.
    return GrantsRead(group, grants, _is_deposed(backend, group, term))


def commit_grants(
    backend: Backend, action: CommitGrants
) -> GrantsCommitted | GrantsRefused | GrantsUnknown:
    """Commit new grants and remove freed ones, if the basis of the decision is unchanged."""
    group, number = action.group, action.number
    expect = {LEADERS + group: action.term, **dict(action.versions)}
    writes: dict[str, bytes | None] = {}
    for unit, borrower, process, replaces in action.granted:
        expect[grant_key(group, unit)] = replaces
        writes[grant_key(group, unit)] = _encode(_Grant(borrower, process))
        writes[FENCES + unit_fence(group, unit)] = b""
    for unit, epoch in action.freed:
        expect[grant_key(group, unit)] = epoch
        writes[grant_key(group, unit)] = None
        writes[FENCES + unit_fence(group, unit)] = b""
    try:
        epoch = backend.store.commit(Change(expect, writes))
    except Conflict:
        return _refused(backend, action)
    except BackendUnavailable:
        return GrantsUnknown(group, number)
    return GrantsCommitted(group, number, epoch)


def _refused(backend: Backend, action: CommitGrants) -> GrantsRefused | GrantsUnknown:
    try:
        deposed = _is_deposed(backend, action.group, action.term)
    except BackendUnavailable:
        return GrantsUnknown(action.group, action.number)
    return GrantsRefused(action.group, action.number, deposed)


def _is_deposed(backend: Backend, group: str, term: int) -> bool:
    entry = backend.store.get(LEADERS + group)
    return entry is None or entry.version != term
