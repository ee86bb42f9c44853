"""Pauses: while a subscription is paused, its workers call no handler.

The store entry ``subscription-paused/NAME`` says since when and why. Workers watch it. They keep
their shards, so a subscription that is resumed continues at once.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tailrace.backend.contract import FENCES, Backend, Change, Entry, Fence
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Fenced
from tailrace.group.store.history import record_change
from tailrace.subscription.store.lifecycle import read_definition
from tailrace.subscription.store.names import PAUSED, SUBSCRIPTIONS, worker_group

BREAKER: Final = "dead-letter breaker"
"""Who pauses a subscription whose dead letters are too many."""

_log: Final = logging.getLogger("tailrace.subscription")


class Pause(msgspec.Struct, frozen=True):
    """Why a subscription is paused, who paused it, and since when."""

    reason: str
    by: str
    since_ms: int


_decode = msgspec.json.Decoder(Pause).decode


def pause(backend: Backend, name: str, reason: str, by: str, now_ms: int) -> bool:
    """Pause a subscription. False, with nothing changed, if it is paused already.

    Raises `UnknownSubscription`. Calls in flight are finished.
    """

    def attempt() -> bool:
        if find_pause(backend, name) is not None:
            return False
        stored = read_definition(backend, name)
        value = msgspec.json.encode(Pause(reason, by, now_ms))
        expect = {SUBSCRIPTIONS + name: stored.version, PAUSED + name: 0}
        backend.store.commit(Change(expect, {PAUSED + name: value}))
        return True

    return retry_on_conflict(attempt, f"subscription {name!r}")


def pause_fenced(backend: Backend, name: str, reason: str, fence: Fence, now_ms: int) -> int:
    """Pause a subscription as the owner of one of its shards, and return the version of the pause;
    that of an earlier one if it is paused already.

    Raises `Fenced`, with nothing changed, if the shard has another owner by now, and
    `UnknownSubscription`.
    """

    def attempt() -> int:
        held = backend.store.get(FENCES + fence.name)
        if held is None or held.version != fence.epoch:
            raise Fenced(fence.name, fence.epoch, None if held is None else held.version)
        if version := pause_version(backend, name):
            return version
        stored = read_definition(backend, name)
        expect = {SUBSCRIPTIONS + name: stored.version, PAUSED + name: 0}
        expect[FENCES + fence.name] = fence.epoch
        value = msgspec.json.encode(Pause(reason, BREAKER, now_ms))
        version = backend.store.commit(Change(expect, {PAUSED + name: value}))
        record_change(backend, worker_group(name), "pause", f"{BREAKER}: {reason}", now_ms)
        _log.error("%s: paused by its %s: %s", name, BREAKER, reason)
        return version

    return retry_on_conflict(attempt, f"subscription {name!r}")


def resume(backend: Backend, name: str) -> Pause | None:
    """End the pause of a subscription, and return it; None if there was none.

    Raises `UnknownSubscription`.
    """
    read_definition(backend, name)
    found = find_pause(backend, name)
    if found is not None:
        backend.store.commit(Change(writes={PAUSED + name: None}))
    return found


def find_pause(backend: Backend, name: str) -> Pause | None:
    """Return the pause of a subscription; None if it is not paused."""
    entry = backend.store.get(PAUSED + name)
    return None if entry is None else pause_of(entry)


def pause_version(backend: Backend, name: str) -> int:
    """Return the version of a subscription's pause; 0 if it is not paused."""
    entry = backend.store.get(PAUSED + name)
    return 0 if entry is None or entry.value is None else entry.version


def pause_of(entry: Entry) -> Pause | None:
    """Return the pause in a store entry, which may be removed (see `Store.watch`)."""
    return None if entry.value is None else _decode(entry.value)
