"""The orders of the demo: the same at every run, and for a producer that is restarted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from tailrace.errors import InvalidValue

PRODUCERS: Final = 4
ORDERS_MIN: Final = 1_000

_CUSTOMERS_MAX: Final = 2_000
_ORDERS_PER_CUSTOMER: Final = 200


class Order(msgspec.Struct, frozen=True):
    """The `number`-th order of a customer, from 1 on."""

    customer: str
    number: int
    total: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A number of orders, divided among the producers.

    Each customer orders at one producer only. So the order of a customer's orders is known, and any
    other order that is read is wrong.
    """

    orders: int

    def __post_init__(self) -> None:
        if self.orders < ORDERS_MIN:
            raise InvalidValue("orders", self.orders, f"{ORDERS_MIN:,} or more")

    @property
    def customers(self) -> int:
        """Number of customers. A small workload has fewer, so that each has many orders."""
        return min(_CUSTOMERS_MAX, self.orders // _ORDERS_PER_CUSTOMER)

    def count(self, producer: int) -> int:
        """Return the number of orders of a producer."""
        return len(range(producer, self.orders, PRODUCERS))

    def orders_of(self, producer: int) -> Iterator[Order]:
        """Yield the orders of a producer: its customers in rounds, shuffled for each round."""
        chance = random.Random(producer)
        customers = [f"c{number:04}" for number in range(producer, self.customers, PRODUCERS)]
        for index in range(self.count(producer)):
            number, turn = divmod(index, len(customers))
            if turn == 0:
                chance.shuffle(customers)
            yield Order(customers[turn], number + 1, chance.randrange(100, 100_000) / 100)
