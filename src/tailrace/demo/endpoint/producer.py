"""Pushing the orders of the endpoint act, with receipts that the audit reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.endpoint.orders import WebOrders
from tailrace.demo.workload import Order

TOPIC: Final = "web-orders"
RECEIPTS: Final = "web-receipts"


class WebReceipt(NamedTuple):
    """The receipt of an order of the endpoint act. Times are comparable on one host."""

    customer: str
    number: int
    position: str
    pushed_ns: int


def push_round(
    topic: tailrace.Topic[Order], orders: WebOrders, number: int, directory: Path
) -> None:
    """Push an order of each customer, and save the receipts."""
    pushed_ns = time.monotonic_ns()
    batch = list(orders.round(number))
    receipts = topic.push_many([(order.customer, order) for order in batch])
    with (directory / RECEIPTS).open("a") as file:
        file.writelines(
            f"{order.customer} {order.number} {receipt.id} {pushed_ns}\n"
            for order, receipt in zip(batch, receipts, strict=True)
        )


def web_receipts(directory: Path) -> Iterator[WebReceipt]:
    """Yield the receipt of every order, in the order of the pushes."""
    for line in (directory / RECEIPTS).read_text().split("\n")[:-1]:
        customer, number, position, pushed_ns = line.split(" ")
        yield WebReceipt(customer, int(number), position, int(pushed_ns))
