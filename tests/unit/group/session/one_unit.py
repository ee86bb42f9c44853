"""The only unit of these tests, and values read from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.message import Partition

UNIT = "orders/0.0"
WHERE = Partition.parse(UNIT)


def numbers(deliveries: Iterator[Any], count: int) -> list[int]:
    """Return the values of the next deliveries."""
    return [next(deliveries).value for _ in range(count)]
