"""The audit of the endpoint act finds each broken promise in the endpoint's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.demo.endpoint.audit import LOGS, endpoint_rows
from tailrace.demo.endpoint.orders import (
    CUSTOMERS,
    DELIVERIES_MIN,
    HELD,
    REFUSED,
    UNAVAILABLE,
    WebOrders,
)
from tailrace.demo.endpoint.producer import RECEIPTS
from tailrace.demo.endpoint.server import (
    OK,
    REFUSED_STATUS,
    UNAVAILABLE_STATUS,
    EndpointFiles,
    Request,
)
from tailrace.errors import InvalidValue

S = 1_000_000_000
FROM_S, UNTIL_S, FIXED_S = 1, 6, 100
ROUNDS = 9

ONCE = "web orders accepted by the endpoint exactly once"
IN_ORDER = "customers accepted in order"
NOT_HELD_UP = "customers not held up by those with 503"
PARKED = "orders parked behind one HTTP 422"
MARKED = "orders posted again after the freeze"
FENCED = "worker that was frozen"

Log = list[Request]


def request(
    customer: str, number: int, at_s: float, status: int = OK, again: bool = False
) -> Request:
    """Return a request with the `number`-th order of a customer, whose partition is its own."""
    offset = 100 * CUSTOMERS.index(customer) + number
    position = f"web-orders/0.{CUSTOMERS.index(customer) % 8}@{offset}"
    epoch = 2 if again else 1
    at_ns = int(at_s * S)
    return Request(at_ns, customer, number, position, f"{offset:019}", epoch, 1, status, again)


def made() -> Log:
    """Return the log of an act in which every promise was kept: an order of each customer a second,
    which is accepted 10 ms later or once the endpoint accepts it."""
    log = []
    for customer in CUSTOMERS:
        for number in range(1, ROUNDS + 1):
            at_s = number + 0.01
            if customer in UNAVAILABLE and at_s < UNTIL_S:
                log += [request(customer, 1, at_s, UNAVAILABLE_STATUS)]
                at_s = UNTIL_S + number / 1000
            if customer == REFUSED:
                at_s = FIXED_S + number
            log.append(request(customer, number, at_s))
    log.append(request(REFUSED, 1, FROM_S + 0.01, REFUSED_STATUS))
    log.append(request(HELD, 5, 9.5, again=True))
    return sorted(log)


def broken(
    directory: Path, log: Log, refused: str = "crm: a write is refused: 0.1 has a newer owner"
) -> list[str]:
    """Write the files of an act, and return the promises that the audit finds broken."""
    files = EndpointFiles(directory)
    files.make()
    fields = ([*each[:-1], int(each.again)] for each in log)
    files.log.write_text("".join(" ".join(map(str, each)) + "\n" for each in fields))
    orders = {(each.customer, each.number): each.id for each in made() if each.accepted}
    (directory / RECEIPTS).write_text(
        "".join(f"{key} {number} {id} {number * S}\n" for (key, number), id in orders.items())
    )
    (directory / LOGS).mkdir()
    (directory / LOGS / "worker-0.log").write_text(f"2026-11-18 WARNING {refused}\n")
    rows = endpoint_rows(directory)
    return [row.guarantee.split(", ")[0] for row in rows if not row.held]


def without(log: Log, customer: str, number: int) -> Log:
    return [each for each in log if (each.customer, each.number) != (customer, number)]


def swapped(log: Log, customer: str) -> Log:
    """Return the log with the times of two accepted orders of a customer exchanged."""
    first, second = [each for each in log if each.customer == customer and each.accepted][-2:]
    rest = [each for each in log if each not in (first, second)]
    exchanged = [
        first._replace(received_ns=second.received_ns),
        second._replace(received_ns=first.received_ns),
    ]
    return sorted([*rest, *exchanged])


def test_a_log_in_which_every_promise_was_kept_passes(tmp_path: Path) -> None:
    assert broken(tmp_path, made()) == []


def test_the_figures_without_tailrace_are_those_of_the_controls(tmp_path: Path) -> None:
    assert broken(tmp_path, made()) == []
    figures = {row.guarantee.split(",")[0]: row.without for row in endpoint_rows(tmp_path)}
    orders = ROUNDS * len(CUSTOMERS)
    beside = sum(CUSTOMERS.index(customer) % 8 > 4 for customer in CUSTOMERS) - 1
    assert figures == {
        ONCE: orders - 1,
        IN_ORDER: len(CUSTOMERS) - len(UNAVAILABLE),
        NOT_HELD_UP: beside,
        "orders parked behind one HTTP 422": 0,
        MARKED: 0,
        FENCED: 0,
    }


@pytest.mark.parametrize(
    ("tamper", "promises"),
    [
        (lambda log: without(log, CUSTOMERS[50], 9), [ONCE]),
        (lambda log: [*log, request(CUSTOMERS[50], 9, 200)], [ONCE, IN_ORDER, MARKED]),
        (lambda log: [*log, request(CUSTOMERS[50], 10, 200)], [ONCE]),
        (lambda log: swapped(log, CUSTOMERS[50]), [IN_ORDER]),
        (lambda log: swapped(log, REFUSED), [IN_ORDER]),
        (lambda log: [*log, request(CUSTOMERS[50], 9, 200, again=True)], []),
        (lambda log: [each for each in log if not each.again], [MARKED]),
        (lambda log: [*log, request(REFUSED, 1, 2, REFUSED_STATUS)], []),
        (lambda log: [*log, request(REFUSED, 2, 2, REFUSED_STATUS)], [PARKED]),
        (lambda log: [each for each in log if each.status != REFUSED_STATUS], [PARKED]),
        (lambda log: without(log, REFUSED, 9), [ONCE, PARKED]),
        (lambda log: [each for each in log if each.status != UNAVAILABLE_STATUS], [NOT_HELD_UP]),
        (lambda log: _late(log, CUSTOMERS[50]), [NOT_HELD_UP]),
        (lambda log: [each._replace(sequence="0") for each in log], [IN_ORDER]),
        (lambda log: [each._replace(id="web-orders/0.0@0") for each in log], [ONCE, MARKED]),
    ],
    ids=[
        "an order lost",
        "an order accepted twice",
        "an order that nobody pushed",
        "two orders exchanged",
        "two dead letters exchanged",
        "one more order recognised",
        "no order posted again",
        "the refused order posted again",
        "a follower of the refused order posted",
        "nothing refused",
        "a dead letter not redelivered",
        "nothing failed",
        "a customer that waited for the failing ones",
        "a sequence that does not rise",
        "another position than that of the receipt",
    ],
)
def test_a_log_that_was_tampered_with_breaks_promises(
    tamper: Callable[[Log], Log], promises: list[str], tmp_path: Path
) -> None:
    assert broken(tmp_path, tamper(made())) == promises


def _late(log: Log, customer: str) -> Log:
    """Return the log with the orders of a customer accepted only when the failures have ended."""
    return sorted(
        each._replace(received_ns=max(each.received_ns, 7 * S))
        if each.customer == customer
        else each
        for each in log
    )


def test_a_worker_without_a_refused_write_breaks_a_promise(tmp_path: Path) -> None:
    assert broken(tmp_path, made(), "crm: shard 0.1 is lost by worker-0") == [FENCED]


def test_each_customer_has_the_same_number_of_web_orders() -> None:
    orders = WebOrders(1_201)
    assert (orders.rounds, orders.half, orders.orders) == (11, 5, 1_320)
    assert sorted(order.customer for order in orders.round(3)) == list(CUSTOMERS)
    assert list(orders.round(3)) == list(orders.round(3))


def test_too_few_web_orders_are_refused() -> None:
    with pytest.raises(InvalidValue, match="1,200 or more"):
        WebOrders(DELIVERIES_MIN - 1)
