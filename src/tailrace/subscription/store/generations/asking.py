"""Asking for another number of shards."""

from __future__ import annotations

import msgspec

from tailrace.amount import format_amount, is_whole
from tailrace.backend.contract import Backend, Change
from tailrace.backend.retry import retry_on_conflict
from tailrace.errors import Busy, InvalidValue
from tailrace.subscription.layout.agreement import valid_shards
from tailrace.subscription.layout.generation import ChangePhase, GenerationChange
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import SUBSCRIPTIONS
from tailrace.topic.composite import TOPICS


def ask_for_shards(
    backend: Backend, name: str, shards: int, *, uneven: bool, by: str, now_ms: int
) -> bool:
    """Ask for a number of shards. Whoever finds the next generation possible makes it.

    False, with nothing changed, if the subscription has this number and no other was asked for, or
    if this change is under way. To ask for the present number takes back a change that has not
    begun. Raises `Busy` if another change is under way, and `InvalidValue` for a number that is not
    possible.
    """

    def attempt() -> bool:
        stored = read_subscription(backend, name)
        change = asked_change(stored, shards, uneven=uneven, by=by, now_ms=now_ms)
        definition = stored.definition
        if change == definition.change:
            return False
        after = msgspec.structs.replace(definition, change=change)
        key, topic = SUBSCRIPTIONS + name, TOPICS + definition.topic
        expect = {key: stored.version, topic: stored.main.version}
        backend.store.commit(Change(expect, {key: msgspec.json.encode(after)}))
        return True

    return retry_on_conflict(attempt, f"subscription {name!r}")


def asked_change(
    stored: StoredSubscription, shards: int, *, uneven: bool, by: str = "", now_ms: int = 0
) -> GenerationChange | None:
    """Return the change that asks for a number of shards; None for the present number. Raises as
    `ask_for_shards` does."""
    definition, under_way = stored.definition, stored.definition.change
    check_shards(stored, shards, uneven=uneven)
    if under_way is not None:
        if shards == under_way.shards:
            return under_way
        if under_way.phase is not ChangePhase.ASKED or shards != definition.shards:
            raise _busy(stored, under_way)
        return None
    if shards == definition.shards:
        return None
    return GenerationChange(ChangePhase.ASKED, shards, uneven=uneven, since_ms=now_ms, by=by)


def check_shards(stored: StoredSubscription, shards: int, *, uneven: bool) -> None:
    """Raise `InvalidValue` unless a subscription may have this number of shards."""
    main = stored.main_topic
    partitions = main.newest.partitions
    if not is_whole(shards) or not 1 <= shards <= partitions:
        valid = f"1 to {partitions}, the partitions of {stored.definition.topic}"
        raise InvalidValue("shards", shards, valid)
    if partitions % shards and not uneven:
        numbers = ", ".join(map(str, valid_shards(main.strategy, main.kind, [main.newest])))
        raise InvalidValue(
            "shards",
            shards,
            f"a number that divides the {format_amount(partitions, 'partition')}: {numbers}",
            "any other: uneven=True, or --uneven",
        )
    total = stored.definition.load.concurrency_total
    if total is not None and shards > total:
        valid = f"1 to {total}, the concurrency_total, for each shard has one call at least"
        raise InvalidValue("shards", shards, valid, "or raise it first: --concurrency-total")


def _busy(stored: StoredSubscription, change: GenerationChange) -> Busy:
    name, shards = stored.name, format_amount(change.shards, "shard")
    if change.phase is ChangePhase.ASKED:
        now = stored.definition.shards
        remedy = f"wait for it, or take it back: tailrace subscription reshard {name} {now}"
    else:
        remedy = "wait until it is done"
    return Busy(f"{name} already changes to {shards}", remedy, f"tailrace explain {name}")
