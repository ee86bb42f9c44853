"""Pauses: while a subscription is paused, its workers call no handler.

The store entry ``subscription-paused/NAME`` says since when and why. Workers watch it. They keep
their shards, so a subscription that is resumed continues at once.
"""

from __future__ import annotations

import msgspec

from tailrace.backend.contract import Backend, Change, Entry
from tailrace.backend.retry import retry_on_conflict
from tailrace.subscription.store.lifecycle import read_definition
from tailrace.subscription.store.names import PAUSED, SUBSCRIPTIONS


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
