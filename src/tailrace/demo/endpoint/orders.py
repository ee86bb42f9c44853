"""The orders of the endpoint act, and the customers for which the endpoint fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.delivery.retry import Retry
from tailrace.demo.workload import Order
from tailrace.errors import InvalidValue

CUSTOMERS: Final = tuple(f"w{number:03}" for number in range(120))

UNAVAILABLE: Final = frozenset(CUSTOMERS[:5])
"""The customers for which the endpoint answers 503 for some seconds."""

REFUSED: Final = CUSTOMERS[5]
"""The customer for which the endpoint answers 422 until it is fixed."""

HELD: Final = CUSTOMERS[6]
"""The customer whose orders of the second half the endpoint answers only when told."""

RETRY: Final = Retry(attempts=None, first="200ms", max="1s")
"""When an order that failed is posted again."""

DELIVERIES_MIN: Final = 10 * len(CUSTOMERS)


@dataclass(frozen=True, slots=True)
class WebOrders:
    """A number of orders, at least so many: each customer has the same number of them."""

    deliveries: int

    def __post_init__(self) -> None:
        if self.deliveries < DELIVERIES_MIN:
            raise InvalidValue("deliveries", self.deliveries, f"{DELIVERIES_MIN:,} or more")

    @property
    def rounds(self) -> int:
        """Number of orders of each customer."""
        return -(-self.deliveries // len(CUSTOMERS))

    @property
    def half(self) -> int:
        """Number of rounds that are pushed while the endpoint fails."""
        return self.rounds // 2

    @property
    def orders(self) -> int:
        """Number of orders."""
        return self.rounds * len(CUSTOMERS)

    def round(self, number: int) -> Iterator[Order]:
        """Yield the `number`-th order of each customer, shuffled."""
        chance = random.Random(number)
        for customer in chance.sample(CUSTOMERS, len(CUSTOMERS)):
            yield Order(customer, number, chance.randrange(100, 100_000) / 100)
