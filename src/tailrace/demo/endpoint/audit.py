"""The audit of the endpoint act: the producer's receipts against the endpoint's own log.

Nothing else that Tailrace reports of itself is read, except the writes that the frozen worker was
refused: they are in its log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from tailrace.demo.endpoint.control import customers_beside, customers_in_order
from tailrace.demo.endpoint.orders import REFUSED, UNAVAILABLE
from tailrace.demo.endpoint.producer import WebReceipt, web_receipts
from tailrace.demo.endpoint.server import (
    OK,
    REFUSED_STATUS,
    UNAVAILABLE_STATUS,
    EndpointFiles,
    Request,
)
from tailrace.demo.report import Row
from tailrace.testing.auditor import Auditor

LOGS: Final = "logs"
"""The directory of the logs of the endpoint and the workers."""

_REFUSAL: Final = "has a newer owner"


def endpoint_rows(directory: Path) -> list[Row]:
    """Return the rows of the closing table."""
    receipts, requests = list(web_receipts(directory)), list(EndpointFiles(directory).requests())
    return [
        _accepted_once(receipts, requests),
        _in_order(receipts, requests),
        _not_held_up(receipts, requests),
        _parked(receipts, requests),
        _marked(requests),
        Row(
            "worker that was frozen, its late write refused",
            expected=1,
            seen=min(1, len(refusals(directory))),
            without=0,
        ),
    ]


def refusals(directory: Path) -> list[str]:
    """Return what the workers have logged of writes that were refused."""
    lines = [
        line
        for file in sorted((directory / LOGS).glob("worker-*.log"))
        for line in file.read_text().split("\n")[:-1]
    ]
    return [line.partition(": ")[2] for line in lines if _REFUSAL in line]


def _accepted_once(receipts: Sequence[WebReceipt], requests: Sequence[Request]) -> Row:
    auditor = Auditor()
    for receipt in receipts:
        auditor.pushed(receipt.customer, receipt.number, receipt.position)
    for request in requests:
        if request.accepted:
            auditor.saw(request.customer, request.number, request.id)
    audit = auditor.audit()
    answered = Counter((each.customer, each.number) for each in requests if each.status == OK)
    return Row(
        "web orders accepted by the endpoint exactly once",
        expected=len(receipts),
        seen=audit.seen - len(audit.doubled | audit.displaced),
        without=sum(times == 1 for times in answered.values()),
    )


def _in_order(receipts: Sequence[WebReceipt], requests: Sequence[Request]) -> Row:
    accepted: defaultdict[str, list[Request]] = defaultdict(list)
    for request in requests:
        if request.accepted:
            accepted[request.customer].append(request)
    return Row(
        "customers accepted in order, during 503 and 422",
        expected=len({receipt.customer for receipt in receipts}),
        seen=sum(_rises(orders) for orders in accepted.values()),
        without=customers_in_order(receipts, requests),
    )


def _rises(orders: Sequence[Request]) -> bool:
    """True if the numbers and the sequences of a customer's orders rise."""
    return all(
        before.number < after.number and before.sequence < after.sequence
        for before, after in pairwise(orders)
    )


def _not_held_up(receipts: Sequence[WebReceipt], requests: Sequence[Request]) -> Row:
    """Count the customers that did not wait for the failing ones: of their orders that were pushed
    during the failures, at least half were accepted before the end of the failures."""
    accepted_ns = _first_accepted(requests)
    failures = [request.received_ns for request in requests if request.status == UNAVAILABLE_STATUS]
    start, end = min(failures, default=0), max(failures, default=0)
    failing = UNAVAILABLE | {REFUSED}
    early: Counter[str] = Counter()
    delays_ns = []
    for order in receipts:
        if order.customer in failing or not start <= order.pushed_ns < end:
            continue
        at = accepted_ns.get((order.customer, order.number), end)
        early[order.customer] += 1 if at < end else -1
        delays_ns.append(at - order.pushed_ns)
    delay_ms = median(delays_ns) / 1e6 if delays_ns else 0.0
    return Row(
        f"customers not held up by those with 503, median {delay_ms:.0f} ms",
        expected=len({each.customer for each in receipts} - failing),
        seen=sum(orders >= 0 for orders in early.values()),
        without=len(customers_beside(receipts, requests) - failing),
    )


def _parked(receipts: Sequence[WebReceipt], requests: Sequence[Request]) -> Row:
    """Count the orders of the refused customer that were accepted after the refusal of one."""
    received = [request for request in requests if request.customer == REFUSED]
    refused = [request for request in received if request.status == REFUSED_STATUS]
    accepted_ns = _first_accepted(received)
    fixed_ns = min(accepted_ns.values(), default=0)
    parked = [at for at in accepted_ns.values() if refused and at > refused[0].received_ns]
    orders = [receipt for receipt in receipts if receipt.customer == REFUSED]
    return Row(
        "orders parked behind one HTTP 422, accepted after the fix",
        expected=len(orders),
        seen=len(parked) if len({request.id for request in refused}) == 1 else 0,
        without=sum(receipt.pushed_ns > fixed_ns for receipt in orders),
    )


def _marked(requests: Sequence[Request]) -> Row:
    """Compare the orders that came again after they were accepted with those marked as such. The
    freeze makes at least one come again."""
    accepted: set[str] = set()
    again = marked = 0
    for request in requests:
        if request.status == OK:
            again += request.id in accepted
            marked += request.again and request.id in accepted
            accepted.add(request.id)
    return Row(
        "orders posted again after the freeze, all recognised",
        expected=max(1, again),
        seen=marked,
        without=0,
    )


def _first_accepted(requests: Iterable[Request]) -> dict[tuple[str, int], int]:
    """Return when each order was accepted for the first time."""
    found: dict[tuple[str, int], int] = {}
    for request in requests:
        if request.accepted:
            found.setdefault((request.customer, request.number), request.received_ns)
    return found
