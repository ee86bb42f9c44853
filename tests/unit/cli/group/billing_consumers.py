"""Consumers of the group billing: running, and stuck at a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import tailrace
from tests.support.command_line import CommandLine
from tests.support.groups import for_each


@contextmanager
def consumers(cli: CommandLine, count: int) -> Iterator[None]:
    """Run a number of consumers of billing. One of them has a message in flight."""
    with tailrace.open(cli.hub, sync="none") as hub, ExitStack() as running:
        first = running.enter_context(hub.tail("orders", group="billing", id="till"))
        next(iter(first))
        for _ in range(count - 1):
            running.enter_context(hub.tail("orders", group="billing"))
        yield


@contextmanager
def stuck(cli: CommandLine, *keys: str) -> Iterator[str]:
    """Run a consumer of billing that acknowledged all messages but those of some keys.

    It failed at a message of each of these keys. Yields the first of their positions.
    """

    def refuse(delivery: tailrace.Delivery[int]) -> None:
        if delivery.key in keys:
            delivery.nack()

    with (
        tailrace.open(cli.hub, sync="none") as hub,
        hub.tail("orders", group="billing", id="till", attempts=2, idle_timeout="1m") as orders,
    ):
        positions = []
        for _ in keys:
            with pytest.raises(tailrace.DeliveryFailed) as caught:
                for_each(orders, refuse)
            positions.append(caught.value.position)
        yield min(positions)


def mark(cli: CommandLine) -> int:
    """Return the low-water mark of billing."""
    (stream,) = cli.json("group", "show", "billing")["partitions"]
    return int(stream["mark"])


def refuse_two(delivery: tailrace.Delivery[int]) -> None:
    """Fail at every message of the key c2."""
    if delivery.key == "c2":
        raise ValueError("no stock")
