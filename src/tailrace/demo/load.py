"""Who orders what: the same at every run, and for every producer that takes up where one died."""

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
_ORDERS_OF_A_CUSTOMER: Final = 200


class Order(msgspec.Struct, frozen=True):
    """The `number`-th order of a customer, from 1 on."""

    customer: str
    number: int
    total: float


@dataclass(frozen=True, slots=True)
class Load:
    """So many orders, divided among the producers; each customer orders at one producer only.

    So the order of a customer's orders is known, and any other that is read is wrong.
    """

    orders: int

    def __post_init__(self) -> None:
        if self.orders < ORDERS_MIN:
            raise InvalidValue("orders", self.orders, f"{ORDERS_MIN:,} or more")

    @property
    def customers(self) -> int:
        """How many customers there are: with fewer orders fewer, so that each has many."""
        return min(_CUSTOMERS_MAX, self.orders // _ORDERS_OF_A_CUSTOMER)

    def share(self, producer: int) -> int:
        """How many orders a producer has."""
        return len(range(producer, self.orders, PRODUCERS))

    def orders_of(self, producer: int) -> Iterator[Order]:
        """All orders of a producer: its customers come in rounds, each round in a new order."""
        chance = random.Random(producer)
        customers = [f"c{number:04}" for number in range(producer, self.customers, PRODUCERS)]
        for index in range(self.share(producer)):
            number, turn = divmod(index, len(customers))
            if turn == 0:
                chance.shuffle(customers)
            yield Order(customers[turn], number + 1, chance.randrange(100, 100_000) / 100)
