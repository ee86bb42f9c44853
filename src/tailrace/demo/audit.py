"""What the auditor says of what producers were told and consumers were handed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tailrace
from tailrace.demo.consuming import seen
from tailrace.demo.control import Push, customers_in_order
from tailrace.demo.load import Load
from tailrace.demo.producing import noted
from tailrace.demo.report import Row
from tailrace.testing.auditor import Auditor


def audited(directory: Path, load: Load, counts: Sequence[int]) -> list[Row]:
    """The rows of the closing table, from what the producers and the consumers wrote down.

    `counts` are the numbers of partitions that the topic had while the load was pushed.
    """
    auditor = Auditor()
    pushes: dict[tailrace.Position, Push] = {}
    again = marked = 0
    for customer, number, position, timestamp_ms, _, redelivered in seen(directory):
        if position in pushes:
            again += 1
            marked += redelivered
            continue
        pushes[position] = Push(timestamp_ms, counts[position.storage], customer, number)
        auditor.saw(customer, number, str(position))
    for receipt in noted(directory):
        auditor.told(*receipt)
    audit = auditor.audit()
    untold = audit.seen - audit.told + len(audit.lost)
    steps = " -> ".join(map(str, counts))
    return [
        Row(
            f"partition counts that took orders: {steps}",
            expected=len(set(counts)),
            seen=len({push.partitions for push in pushes.values()}),
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
            f"customers served in order by the group, over {steps}",
            expected=load.customers,
            seen=len({push.customer for push in pushes.values()} - audit.disordered),
            without=customers_in_order(pushes.values()),
        ),
        Row(
            "orders handed out again over kill -9, and marked so",
            expected=again,
            seen=marked,
            without=0 if again else None,
        ),
    ]
