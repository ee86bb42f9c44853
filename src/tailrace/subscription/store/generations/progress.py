"""What of a subscription's topics is finished, and what its queues still hold.

Read from the ledgers. What is finished stays so: ledgers only grow.
"""

from __future__ import annotations

from tailrace.backend.contract import Backend
from tailrace.errors import UnknownTopic
from tailrace.message import Partition
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.names import worker_group
from tailrace.topic.composite import Definition
from tailrace.topic.ledger import load_storage
from tailrace.topic.record_count import amount_left


def first_unfinished(backend: Backend, stored: StoredSubscription) -> int:
    """Return the first open storage topic of MQ with a partition that is not finished; the number
    of those that are open if there is none."""
    definition, main = stored.definition, stored.main.definition
    for storage in range(definition.opened):
        if not _finished(backend, stored.name, definition.topic, main, storage):
            return storage
    return definition.opened


def unacknowledged_in(
    backend: Backend, stored: StoredSubscription, topic: str, of: Definition, storage: int
) -> int:
    """Return the number of unacknowledged records in a storage topic."""
    count = of.storage[storage].partitions
    partitions = [Partition(topic, storage, number) for number in range(count)]
    ledgers = read_ledgers(backend, stored, partitions)
    return sum(amount_left(backend.log, each, ledgers[each]).records for each in partitions)


def _finished(
    backend: Backend, subscription: str, topic: str, of: Definition, storage: int
) -> bool:
    try:
        bounds = backend.log.bounds_of(of.storage_topic(topic, storage))
    except UnknownTopic:
        return True  # the storage topic was deleted
    known = load_storage(backend.table, worker_group(subscription), topic, storage)
    for number, (_, end, sealed) in enumerate(bounds):
        mark = known[number].mark if number in known else 0
        if not sealed or mark < end:
            return False
    return True
