"""Making a request: the store entries that the owners of shards carry out."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Change
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Busy, InvalidValue
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.shard.requests.request import (
    TARGETS_MAX,
    LetterRequest,
    RequestAction,
    RequestTarget,
    encode_request,
)
from tailrace.subscription.store.generations.steps import advance
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import SUBSCRIPTIONS, requests_prefix
from tailrace.subscription.store.requests.selection import LetterSelection, select_letters

PENDING_MAX: Final = 1_000
"""The most store entries of pending requests of a subscription."""


class Requester(NamedTuple):
    """Who makes a request, by which command, and why: for the audit. `who` is ``user@host``."""

    who: str
    pid: int
    command: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MadeRequest:
    """A request that was made. `entries` is the number of its store entries; 0 if no letter was
    selected. For the other fields see `SelectedLetters`."""

    id: str
    entries: int
    letters: int
    keys: int
    skipped: int
    left: int


def put_requests(
    backend: Backend,
    subscription: str,
    selection: LetterSelection,
    action: RequestAction,
    requester: Requester,
    *,
    now_ms: int,
    break_order: bool = False,
    attempts: int = 1,
    id: str | None = None,
) -> MadeRequest:
    """Ask the owners of shards to redeliver or discard dead letters.

    They do it when they run: the request waits in the store. See `is_pending`. Without an `id`, the
    request gets a random one. Raises `UnknownSubscription`, `Busy` with too many pending requests,
    and the errors of `select_letters`.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise InvalidValue("attempts", attempts, "a whole number, 1 or more")
    id = id or f"{now_ms}-{secrets.token_hex(3)}"
    prefix = requests_prefix(subscription)

    def attempt() -> MadeRequest | None:
        stored = read_subscription(backend, subscription)
        if stored.definition.phase is ChangePhase.MOVING:
            advance(backend, subscription)
            return None
        selected = select_letters(backend, stored, selection, action, break_order=break_order)
        entries = [
            (shard, targets)
            for shard, every in selected.targets.items()
            for targets in _divided(every)
        ]
        _check_room(backend, subscription, len(entries))
        writes: dict[str, bytes | None] = {}
        for number, (shard, targets) in enumerate(entries):
            request = LetterRequest(
                f"{id}.{number}", shard, action, targets, now_ms, *requester, break_order, attempts
            )
            writes[prefix + request.id] = encode_request(request)
        if writes:
            backend.store.commit(Change({SUBSCRIPTIONS + subscription: stored.version}, writes))
        numbers = selected.letters, selected.keys, selected.skipped, selected.left
        return MadeRequest(id, len(entries), *numbers)

    return retry_on_conflict(attempt, f"subscription {subscription!r}")


def is_pending(backend: Backend, subscription: str, id: str) -> bool:
    """True if a request has a part that is not carried out."""
    return bool(backend.store.scan(f"{requests_prefix(subscription)}{id}."))


def _divided(targets: Sequence[RequestTarget]) -> Iterator[tuple[RequestTarget, ...]]:
    """Yield targets, as many at a time as one request may name."""
    names = 0
    some: list[RequestTarget] = []
    for target in targets:
        size = max(1, len(target.letters))
        if some and names + size > TARGETS_MAX:
            yield tuple(some)
            names, some = 0, []
        some.append(target)
        names += size
    if some:
        yield tuple(some)


def _check_room(backend: Backend, subscription: str, more: int) -> None:
    pending = len(backend.store.scan(requests_prefix(subscription)))
    if more and pending + more > PENDING_MAX:
        raise Busy(
            f"{subscription} has {pending:,} pending requests, and at most {PENDING_MAX:,}",
            "wait until workers have carried them out",
        )
