"""The ids that users give to workers: of two workers with one id, the newer one works.

The store entry ``subscription-worker/NAME/ID`` has the session that claimed the id last. The commit
of a claim raises the fences of every shard that the session before was granted, so nothing that it
does afterwards is stored. It ends when it learns of the claim.
"""

from __future__ import annotations

from tailrace.backend.contract import FENCES, Backend, Change
from tailrace.backend.retry import retry_on_conflict
from tailrace.group.protocol.names import consumer_of
from tailrace.group.store.definition import unit_fence
from tailrace.group.store.grants import standing_grants
from tailrace.subscription.store.names import WORKER_IDS, worker_group


def claim_id(backend: Backend, subscription: str, id: str, session: str) -> int:
    """Take over an id, with a session that has no grants yet. Returns the version of the claim."""
    key, group = _key(subscription, id), worker_group(subscription)

    def attempt() -> int:
        before = backend.store.get(key)
        replaced = "" if before is None else (before.value or b"").decode()
        writes: dict[str, bytes | None] = {key: session.encode()}
        for grant in standing_grants(backend, group):
            if consumer_of(grant.borrower) == replaced:
                writes[FENCES + unit_fence(group, grant.unit)] = b""
        change = Change({key: 0 if before is None else before.version}, writes)
        return backend.store.commit(change)

    return retry_on_conflict(attempt, f"the id {id!r}")


def release_id(backend: Backend, subscription: str, id: str, session: str) -> None:
    """Give an id up, unless another session has claimed it."""
    entry = backend.store.get(_key(subscription, id))
    if entry is not None and entry.value == session.encode():
        key = _key(subscription, id)
        backend.store.commit(Change({key: entry.version}, {key: None}))


def id_version(backend: Backend, subscription: str, id: str) -> int:
    """Return the version of the last claim of an id; 0 if it was given up."""
    entry = backend.store.get(_key(subscription, id))
    return 0 if entry is None or entry.value is None else entry.version


def _key(subscription: str, id: str) -> str:
    return f"{WORKER_IDS}{subscription}/{id}"
