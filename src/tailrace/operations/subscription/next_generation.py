"""The change of a subscription to its next generation, in words."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.amount import format_amount
from tailrace.subscription.layout.generation import ChangePhase
from tailrace.subscription.store.describe import NextShards, SubscriptionInfo
from tailrace.subscription.store.generations.plan import FedStorage
from tailrace.subscription.store.generations.waiting import WaitedFor


def change_text(info: SubscriptionInfo) -> str:
    """Return the change to the next generation in words, and what it waits for."""
    following = info.following
    assert following is not None
    shards = format_amount(following.shards, "shard")
    if following.phase is None:
        assert info.closed is not None
        text = f"{info.topic}/{info.closed.storage} is read by the next generation, with {shards}"
    else:
        by = f", asked for by {following.by}" if following.by else ""
        text = f"{info.shards} -> {shards}{by}"
    return f"{text}: {phase_text(following.phase, following.waits_for)}"


def changes_now(following: NextShards | None) -> bool:
    """True if no shard is delivered because the generation changes."""
    return following is not None and following.phase in (ChangePhase.ENDING, ChangePhase.MOVING)


def fed_text(fed: FedStorage) -> str:
    """Return what is left in an older storage topic of a queue."""
    shards = f"shard{'s' * (len(fed.shards) > 1)} {', '.join(map(str, fed.shards))}"
    messages = format_amount(fed.messages, "message")
    return f"{fed.queue.name}/{fed.storage}: {messages} of {shards}"


def phase_text(phase: ChangePhase | None, waits_for: Iterable[WaitedFor]) -> str:
    """Return how far the change to the next generation is, and what it waits for."""
    if phase is ChangePhase.ENDING:
        return "waits until the workers have released the present shards"
    if phase is ChangePhase.MOVING:
        return "prepares the new shards"
    waits = [f"{each} ({format_amount(each.messages, 'message')} left)" for each in waits_for]
    return f"waits until {', '.join(waits)} is finished" if waits else "begins now"
