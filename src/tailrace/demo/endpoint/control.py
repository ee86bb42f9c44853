"""The controls of the endpoint act: senders without a retry queue for each key.

They send the same orders at the times of their pushes, to an endpoint that fails for the same
customers at the same times as in the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from tailrace.demo.endpoint.orders import RETRY
from tailrace.demo.endpoint.producer import WebReceipt
from tailrace.demo.endpoint.server import UNAVAILABLE_STATUS, Request
from tailrace.message import Position

_NS_PER_S: Final = 1e9


def customers_in_order(receipts: Iterable[WebReceipt], requests: Iterable[Request]) -> int:
    """Return the number of customers whose orders are accepted in order by a sender that retries
    each order alone.

    Its delays are the longest of the policy. A customer that is refused for good stays in order:
    its orders are dropped.
    """
    until_ns = _failing_until(requests)
    accepted_ns: defaultdict[str, list[float]] = defaultdict(list)
    for order in receipts:
        at_ns = _accepted_alone(order.pushed_ns, until_ns.get(order.customer, 0))
        accepted_ns[order.customer].append(at_ns)
    return sum(times == sorted(times) for times in accepted_ns.values())


def customers_beside(receipts: Sequence[WebReceipt], requests: Iterable[Request]) -> set[str]:
    """Return the customers in whose partitions no customer fails: a sender that retries in place
    holds up all others."""
    failing = _failing_until(requests).keys()
    partitions = {each.customer: _partition(each.position) for each in receipts}
    blocked = {partitions[customer] for customer in failing if customer in partitions}
    return {customer for customer, where in partitions.items() if where not in blocked}


def _partition(position: str) -> int:
    return Position.parse(position).partition


def _failing_until(requests: Iterable[Request]) -> dict[str, int]:
    """Return the customers with 503, and when each got it last."""
    failed = (each for each in requests if each.status == UNAVAILABLE_STATUS)
    return {each.customer: each.received_ns for each in failed}


def _accepted_alone(pushed_ns: float, failing_until_ns: float) -> float:
    """Return when an order is accepted that waits for no other one."""
    at_ns, attempt = pushed_ns, 1
    while at_ns <= failing_until_ns:
        at_ns += RETRY.delay(attempt, 0.0).total_seconds() * _NS_PER_S
        attempt += 1
    return at_ns
