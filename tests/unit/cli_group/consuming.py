"""Consumers of the group of these tests, at work and stuck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import tailrace
from tests.cli import CommandLine
from tests.unit.group.consuming import for_each


@contextmanager
def consumers(cli: CommandLine, count: int) -> Iterator[None]:
    """So many consumers of billing that run, one of which has a message in hand."""
    with tailrace.open(cli.hub, sync="none") as hub, ExitStack() as running:
        first = running.enter_context(hub.tail("orders", group="billing", id="till"))
        next(iter(first))
        for _ in range(count - 1):
            running.enter_context(hub.tail("orders", group="billing"))
        yield


@contextmanager
def stuck(cli: CommandLine, *keys: str) -> Iterator[str]:
    """A consumer of billing that runs, has done all it can, and failed once at each of some keys;
    where it did first."""

    def refuse(delivery: tailrace.Delivery[int]) -> None:
        if delivery.key in keys:
            delivery.nack()

    with (
        tailrace.open(cli.hub, sync="none") as hub,
        hub.tail("orders", group="billing", id="till", attempts=2, idle_timeout="50ms") as orders,
    ):
        positions = []
        for _ in keys:
            with pytest.raises(tailrace.DeliveryFailed) as caught:
                for_each(orders, refuse)
            positions.append(caught.value.position)
        yield min(positions)


def mark(cli: CommandLine) -> int:
    (stream,) = cli.json("group", "show", "billing")["streams"]
    return int(stream["mark"])
