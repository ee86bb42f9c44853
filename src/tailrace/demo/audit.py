"""The audit of the topic act: producers' receipts against the orders that consumers received."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tailrace
from tailrace.demo.consumer import received
from tailrace.demo.control import PushedOrder, customers_in_order
from tailrace.demo.producer import saved_receipts
from tailrace.demo.report import Row
from tailrace.demo.workload import Workload
from tailrace.testing.auditor import Auditor


def audit_rows(directory: Path, workload: Workload, counts: Sequence[int]) -> list[Row]:
    """Return the rows of the closing table, from the files of the producers and consumers.

    `counts` are the numbers of partitions that the topic had while the orders were pushed.
    """
    auditor = Auditor()
    pushes: dict[tailrace.Position, PushedOrder] = {}
    redelivered = marked = 0
    for order in received(directory):
        if order.position in pushes:
            redelivered += 1
            marked += order.redelivered
            continue
        partitions = counts[order.position.storage]
        push = PushedOrder(order.timestamp_ms, partitions, order.customer, order.number)
        pushes[order.position] = push
        auditor.saw(order.customer, order.number, str(order.position))
    for receipt in saved_receipts(directory):
        auditor.pushed(*receipt)
    audit = auditor.audit()
    without_receipt = audit.seen - audit.pushed + len(audit.lost)
    steps = " -> ".join(map(str, counts))
    return [
        Row(
            f"partition counts used: {steps}",
            expected=len(set(counts)),
            seen=len({push.partitions for push in pushes.values()}),
            without=None,
        ),
        Row(
            "orders found at the position of their receipt",
            expected=audit.pushed,
            seen=audit.pushed - len(audit.lost | audit.displaced),
            without=None,
        ),
        Row(
            "orders stored exactly once, despite kill -9",
            expected=workload.orders,
            seen=audit.seen - len(audit.doubled),
            without=workload.orders - without_receipt,
        ),
        Row(
            f"customers consumed in order, {steps} partitions",
            expected=workload.customers,
            seen=len({push.customer for push in pushes.values()} - audit.disordered),
            without=customers_in_order(pushes.values()),
        ),
        Row(
            "orders redelivered after kill -9, all marked so",
            expected=redelivered,
            seen=marked,
            without=0 if redelivered else None,
        ),
    ]
