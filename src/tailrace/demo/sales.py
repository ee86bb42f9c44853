"""The sales of the demo: the same at every run, with one sale that the database refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from tailrace.errors import InvalidValue

SHOPS: Final = ("berlin", "lisbon", "oslo", "rome")
ROWS_MIN: Final = 1_000

_BAD_AFTER: Final = 0.6


class Sale(msgspec.Struct, frozen=True):
    """The `number`-th sale of a shop, from 1 on. A total below 0 is a mistake."""

    shop: str
    number: int
    customer: str
    total: float


@dataclass(frozen=True, slots=True)
class Sales:
    """A number of sales, the shops in turn. Exactly one sale has a total below 0."""

    rows: int

    def __post_init__(self) -> None:
        if self.rows < ROWS_MIN:
            raise InvalidValue("rows", self.rows, f"{ROWS_MIN:,} or more")

    def __iter__(self) -> Iterator[Sale]:
        chance = random.Random(self.rows)
        bad = int(_BAD_AFTER * self.rows)
        for index in range(self.rows):
            number, turn = divmod(index, len(SHOPS))
            customer = f"c{chance.randrange(2_000):04}"
            total = chance.randrange(100, 100_000) / 100
            yield Sale(SHOPS[turn], number + 1, customer, -total if index == bad else total)
