"""Reading everything back in lineage order, and what the auditor says of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tailrace
from tailrace.demo.control import Push, customers_in_order
from tailrace.demo.load import Load, Order
from tailrace.demo.producing import TOPIC, noted
from tailrace.demo.progress import Progress
from tailrace.demo.report import Row
from tailrace.testing.auditor import Auditor


def audited(directory: Path, load: Load, counts: Sequence[int]) -> list[Row]:
    """The rows of the closing table, from the hub and from what the producers wrote down.

    `counts` are the numbers of partitions that the topic had while the load was pushed.
    """
    auditor = Auditor()
    pushes = _read_all(directory, load, auditor)
    for receipt in noted(directory):
        auditor.told(*receipt)
    audit = auditor.audit()
    untold = audit.seen - audit.told + len(audit.lost)
    steps = " -> ".join(map(str, counts))
    return [
        Row(
            f"partition counts that took orders: {steps}",
            expected=len(set(counts)),
            seen=len({push.partitions for push in pushes}),
            without=None,
        ),
        Row(
            "orders where their receipts say",
            expected=audit.told,
            seen=audit.told - len(audit.lost | audit.displaced),
            without=None,
        ),
        Row(
            "orders stored exactly once, over kill -9",
            expected=load.orders,
            seen=audit.seen - len(audit.doubled),
            without=load.orders - untold,
        ),
        Row(
            f"customers read in order, over {steps}",
            expected=load.customers,
            seen=len({push.customer for push in pushes} - audit.disordered),
            without=customers_in_order(pushes),
        ),
    ]


def _read_all(directory: Path, load: Load, auditor: Auditor) -> list[Push]:
    progress = Progress(sys.stderr, "reading", load.orders, "orders")
    pushes: list[Push] = []
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        topic = hub.topic(TOPIC, Order)
        partitions = [storage.partitions for storage in topic.storage_topics]
        reader = topic.reader()
        while reads := reader.poll():
            for where, records in reads:
                for message in topic.messages(where, records):
                    customer, number = message.value.customer, message.value.number
                    auditor.saw(customer, number, message.id)
                    count = partitions[message.storage]
                    pushes.append(Push(message.timestamp_ms, count, customer, number))
                progress.show(min(len(pushes), load.orders))
    progress.end()
    return pushes
