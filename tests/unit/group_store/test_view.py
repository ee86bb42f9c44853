"""Groups as people see them, also where something is damaged, unused or being moved."""

from __future__ import annotations

from pathlib import Path

import tailrace
from tailrace.hub import Hub
from tailrace.operations.explain import explain
from tailrace.operations.status import status


def test_the_lag_of_a_stream_whose_next_record_is_damaged_is_told_without_its_time(
    tmp_path: Path,
) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        orders = hub.create_topic("orders", partitions=1)
        orders.push(1)
        (file,) = (tmp_path / "hub").glob("topics/orders/*/*.log")
        file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
        orders.tail(group="billing")
        (stream,) = hub.group("billing").lag()
    assert (stream.behind, stream.oldest) == (1, None)


def test_a_seek_is_in_the_history(hub: Hub) -> None:
    hub.create_topic("orders", partitions=1).tail(group="billing")
    group = hub.group("billing")
    group.seek("latest")
    (line,) = group.history()
    assert (line.what, line.why) == ("seek", "to latest")


def test_a_partition_that_pushes_do_not_go_to_yet_is_explained(hub: Hub) -> None:
    orders = hub.create_topic("orders", partitions=4)
    orders.tail(group="billing")
    orders.add_storage_topic(8)
    found = explain(hub, "orders/1.3")
    assert found.headline.startswith("AHEAD")
    assert [each.command for each in found.remedies] == ["tailrace topic switch orders"]


def test_status_names_a_scaling_that_the_topic_can_have(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        orders = hub.create_topic("orders", partitions=1)
        consumers = [orders.tail(group="billing") for _ in range(5)]
        for consumer in consumers:
            consumer.__enter__()
        (note,) = status(hub).notes
        for consumer in consumers:
            consumer.__exit__(None, None, None)
    assert note.remedy == "tailrace topic scale orders 6"
