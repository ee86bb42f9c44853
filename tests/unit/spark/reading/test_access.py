"""Tasks that read a topic which has changed since their query was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import ConfigError
from tailrace.message import Partition
from tailrace.spark.admission import Lag
from tailrace.spark.hubs import log_of
from tailrace.spark.ranges import ReadRange, plan_ranges
from tailrace.spark.reading.access import read_here, read_replaced

Read = Callable[[ReadRange, str], Iterator[Any]]


def planned(hub: tailrace.Hub) -> ReadRange:
    """Return the plan of a task that reads everything of the topic."""
    topic = hub.create_topic("orders", bytes, partitions=1)
    topic.push_many([(None, b"old %d" % number) for number in range(5)])
    (found,) = plan_ranges(log_of(hub), [Lag(Partition("orders", 0, 0), 0, 5)], 1, None)
    return found


@pytest.mark.parametrize("read", [read_here, read_replaced])
@pytest.mark.parametrize("again", [True, False], ids=["created again", "deleted"])
def test_rows_of_another_topic_of_the_name_are_never_read(
    tmp_path: Path, read: Read, again: bool
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        wanted = planned(hub)
        hub.delete_topic("orders")
        if again:
            topic = hub.create_topic("orders", bytes, partitions=1)
            topic.push_many([(None, b"new %d" % number) for number in range(9)])
        with pytest.raises(ConfigError, match=r"'orders' .* was deleted since the query was"):
            list(read(wanted, str(tmp_path / "hub")))
