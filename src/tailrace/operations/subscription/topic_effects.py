"""What the change or the deletion of a topic means for its subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.operations.explanation import Fact
from tailrace.operations.subscription.health import worker_word
from tailrace.operations.subscription.message_verdict import delivering
from tailrace.subscription.store.describe import describe
from tailrace.subscription.store.scaling import ScalingEffect, change_effect
from tailrace.topic.composite import Definition


def effect_facts(hub: Hub, topic: str, after: Definition) -> Iterator[Fact]:
    """Yield what the next definition of a topic means for each of its subscriptions."""
    for effect in change_effect(hub.backend, topic, after):
        shards = format_amount(effect.shards, "shard")
        yield Fact(f"{effect.subscription} ({shards})", _effect(effect))


def _effect(effect: ScalingEffect) -> str:
    if effect.closed is None:
        return "no key changes its shard"
    moved = f"{effect.moved:.0%} of the keys"
    if effect.example is not None:
        moved += f", such as {effect.example!r}"
    shards = format_amount(effect.next_shards, "shard")
    return (
        f"reads storage {effect.closed} with a new generation of {shards}, once all before it is"
        f" acknowledged: {moved}, change the shard; none would with {_shards(effect.open_with)}"
    )


def _shards(numbers: Iterable[int]) -> str:
    """Return numbers of shards in words: ``1, 2 or 4 shards``."""
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return format_amount(ordered[0], "shard")
    return f"{', '.join(map(str, ordered[:-1]))} or {ordered[-1]} shards"


def deletion_facts(hub: Hub, topic: str) -> Iterator[Fact]:
    """Yield the subscriptions that lose their topic, and what becomes of them."""
    for name in delivering(hub, topic):
        info = describe(hub.backend, name)
        ends = "ends"
        if info.workers:
            ends = f"ends, with {format_amount(len(info.workers), f'running {worker_word(info)}')}"
        queued = info.backlog.rq + info.backlog.dlq
        left = f"; {format_amount(queued, 'message')} in its queues" if queued else ""
        remedy = f"delete it too: tailrace {info.kind} delete {name}"
        yield Fact(f"{info.kind} {name}", f"{ends}{left}; {remedy}")
