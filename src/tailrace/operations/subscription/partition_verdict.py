"""What a subscription does with a partition of its topic."""

from __future__ import annotations

from tailrace.amount import format_amount
from tailrace.hub.hub import Hub
from tailrace.message import Partition
from tailrace.operations.explanation import Remedy, Verdict
from tailrace.subscription.store.generations.opening import as_opened
from tailrace.subscription.store.lifecycle import read_subscription
from tailrace.subscription.store.names import worker_group
from tailrace.subscription.store.owners import shard_owners
from tailrace.subscription.store.pause import find_pause
from tailrace.topic.ledger import Progress
from tailrace.topic.record_count import amount_left


def judge_subscribed_partition(hub: Hub, name: str, partition: Partition) -> Verdict:
    """Return the state of a partition for a subscription of its topic."""
    backend = hub.backend
    stored = as_opened(read_subscription(backend, name))
    definition = stored.definition
    progress = Progress.load(backend.table, worker_group(name), partition)
    left = amount_left(backend.log, partition, progress).records
    lag = f"lag {left:,}"
    more = (Remedy("subscription", f"tailrace explain {name} --subscription"),)
    if partition.storage >= definition.opened:
        why = f"{lag}; the next generation reads it once all before is finished"
        return Verdict("WAITING", why, more)
    count = stored.main.definition.storage[partition.storage].partitions
    shard = definition.strategy.owner(partition.number, definition.shards, count)
    owner = shard_owners(backend, name, definition).get(shard)
    if not left:
        done = "every message is delivered, or in the queues of the subscription"
        return Verdict("ACKNOWLEDGED", f"shard {shard}; {done}", (), waits=False)
    if find_pause(backend, name) is not None:
        kind, verb = ("queue", "play") if definition.queue else ("subscription", "resume")
        resume = Remedy("resume", f"tailrace {kind} {verb} {name}")
        return Verdict("PAUSED", f"shard {shard}, {lag}; the {kind} is paused", (resume,))
    if owner is None:
        return Verdict("UNATTENDED", f"shard {shard}, {lag}; no worker owns the shard", more)
    worker = f"owner {owner.worker}, epoch {owner.epoch}"
    messages = format_amount(left, "message")
    return Verdict("DELIVERING", f"shard {shard}, {messages} to deliver; {worker}", more)
