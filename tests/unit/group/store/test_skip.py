"""Skips: the skipped message, the fenced unit, and interrupted skips."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.backend.contract import Backend, Change, Transaction
from tailrace.delivery.delivery import Delivery
from tailrace.delivery.handed_out import handed_out_key, handed_out_value, read_handed_out
from tailrace.errors import DeliveryFailed, Fenced, InvalidValue, OutOfRange, UnknownGroup
from tailrace.group.consumer.consumer import Consumer
from tailrace.group.protocol.events import GrantsRefused
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.definition import consumer_name, read_group
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.seek import finish_seeks, plan_skip, seek, skip
from tailrace.group.store.seek_steps import (
    SeekOrder,
    find_seek,
    finish_pending,
    finishing,
    pending_change,
)
from tailrace.group.store.start import StartMarks
from tailrace.group.store.streams import BasisReader, read_basis
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition, Position
from tailrace.operations.audit import read_audit
from tailrace.operations.group.changes import skip as skip_and_audit
from tailrace.testing import ManualClock, MemoryBackend
from tailrace.topic.ledger import Progress
from tailrace.topic.view import find
from tests.support.groups import GROUP, ack, grant, lead, marks, owner, units_in

STEPS = 6
"""How often `finishing` is entered until it is through."""


@pytest.fixture
def orders(hub: Hub, backend: Backend, clock: ManualClock) -> Topic[Any]:
    """2 partitions with 10 messages each, none of them acknowledged."""
    topic = hub.create_topic("orders", partitions=2)
    fill(topic)
    open_group(backend, GROUP, "orders", "earliest", clock)
    return topic


def fill(topic: Topic[Any]) -> None:
    for number in range(topic.storage_topics[0].partitions):
        topic.push_many([(key_of(topic, number), i) for i in range(10)])


def key_of(topic: Topic[Any], partition: int) -> str:
    """Return a key whose messages go to a partition."""
    return next(key for key in map(str, range(100)) if topic.route(key) == partition)


def offsets(topic: Topic[Any], number: int) -> list[int]:
    """Return the offsets of the messages of a partition, which may have gaps."""
    return [at for batch in topic.batches(0, number) for at in batch["offset"].to_numpy().tolist()]


def holes(backend: Backend, unit: str) -> list[int]:
    """Return the offsets below 1,000 that are not acknowledged."""
    progress = Progress.load(backend.table, consumer_name(GROUP), Partition.parse(unit))
    return [offset for start, end in progress.holes(1000) for offset in range(start, end)]


def leave_pending(backend: Backend, offset: int) -> None:
    """Take the first step of a skip in `orders/0.0` whose process then dies."""
    stored = find(backend, "orders")
    assert stored is not None
    marks = StartMarks(False, {}, {(0, 0): offset})
    order = SeekOrder(stored, find_seek(backend, GROUP, "orders"), "a skip", marks)
    version = read_group(backend, GROUP).version
    backend.store.commit(pending_change(backend, GROUP, version, {"orders": order}))


def test_a_skip_acknowledges_that_message_and_nothing_else(
    backend: Backend, orders: Topic[Any]
) -> None:
    at = offsets(orders, 0)
    ack(backend, "orders/0.0", 0, at[1])
    before = holes(backend, "orders/0.0"), holes(backend, "orders/0.1")
    assert plan_skip(backend, GROUP, Position("orders", 0, 0, at[4]))
    assert (holes(backend, "orders/0.0"), holes(backend, "orders/0.1")) == before
    assert skip(backend, GROUP, Position("orders", 0, 0, at[4]))
    assert holes(backend, "orders/0.0") == [offset for offset in before[0] if offset != at[4]]
    assert holes(backend, "orders/0.1") == before[1]
    assert skip(backend, GROUP, Position("orders", 0, 0, at[1]))
    assert marks(backend, "orders/0.0")[0] == at[1] + 1


def test_an_acknowledged_message_is_not_skipped(backend: Backend, orders: Topic[Any]) -> None:
    first, second = (Position("orders", 0, 0, offset) for offset in offsets(orders, 0)[:2])
    ack(backend, "orders/0.0", 0, first.offset + 1)
    before = find_seek(backend, GROUP, "orders")
    assert not plan_skip(backend, GROUP, first)
    assert not skip(backend, GROUP, first)
    assert find_seek(backend, GROUP, "orders") == before
    assert skip(backend, GROUP, second)
    assert not skip(backend, GROUP, second)


def test_only_a_skip_with_an_effect_is_audited_and_in_the_history(
    hub: Hub, orders: Topic[Any]
) -> None:
    position = f"orders/0.0@{offsets(orders, 0)[4]}"
    for reason in ("first", "second"):
        skip_and_audit(hub, GROUP, position, reason)
    assert [entry.reason for entry in read_audit(hub, GROUP, 10)] == ["first"]
    lines = [line for line in hub.group(GROUP).history() if line.what == "skip"]
    assert [line.why for line in lines] == [f"{position}: first"]


@pytest.mark.parametrize(
    ("position", "error"),
    [
        ("orders/0.0@10000000000000", OutOfRange),
        ("orders/0.9@0", InvalidValue),
        ("orders/7.0@0", InvalidValue),
        ("returns/0.0@0", InvalidValue),
    ],
)
def test_a_position_outside_the_group_skips_nothing(
    backend: Backend, orders: Topic[Any], position: str, error: type[Exception]
) -> None:
    before = find_seek(backend, GROUP, "orders")
    for do in (plan_skip, skip):
        with pytest.raises(error):
            do(backend, GROUP, Position.parse(position))
    assert find_seek(backend, GROUP, "orders") == before
    with pytest.raises(UnknownGroup):
        skip(backend, "biling", Position("orders", 0, 0, 0))


def test_a_skip_fences_the_owner_of_that_unit_alone_and_returns_the_process_to_notify(
    backend: Backend, orders: Topic[Any]
) -> None:
    leader = lead(backend)
    first, other = (owner(backend, leader, f"orders/0.{number}") for number in range(2))
    basis = read_basis(backend, GROUP)
    skip(backend, GROUP, Position("orders", 0, 0, offsets(orders, 0)[0]))
    with pytest.raises(Fenced):
        backend.commit(Transaction(fence=first))
    backend.commit(Transaction(fence=other))
    assert grant(backend, leader, "orders/0.0", basis) == GrantsRefused(GROUP, 1, deposed=False)
    assert {each.unit: each.fenced for each in lead(backend).grants} == {
        "orders/0.0": True,
        "orders/0.1": False,
    }


def test_while_a_skip_is_pending_its_unit_waits_alone_and_the_reader_finishes_it(
    backend: Backend, orders: Topic[Any]
) -> None:
    at = offsets(orders, 0)[0]
    leave_pending(backend, at)
    assert units_in(backend, UnitState.WAITING) == {"orders/0.0"}
    assert units_in(backend, UnitState.OPEN) == {"orders/0.1"}
    basis = BasisReader(backend, GROUP).read()
    assert {unit.state for unit in basis.units} == {UnitState.OPEN}
    assert at not in holes(backend, "orders/0.0")
    assert not finish_pending(backend, GROUP, "orders")


@pytest.mark.parametrize("steps", range(STEPS))
def test_a_skip_interrupted_at_any_step_is_finished_by_the_next_change(
    backend: Backend, orders: Topic[Any], steps: int
) -> None:
    one, other = offsets(orders, 0)[0], offsets(orders, 1)[3]
    leave_pending(backend, one)
    cut_short = finishing(backend, GROUP, "orders")
    for _ in range(steps):
        next(cut_short)
    skip(backend, GROUP, Position("orders", 0, 1, other))
    assert one not in holes(backend, "orders/0.0")
    assert other not in holes(backend, "orders/0.1")
    seek(backend, GROUP, "earliest")
    list(cut_short)
    assert one in holes(backend, "orders/0.0"), "it came late, and wrote all the same"


def test_a_skip_is_applied_after_one_that_another_process_began(
    backend: Backend, orders: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = offsets(orders, 0)[2:4]
    others = iter([first])

    def finish_and_be_overtaken(backend: Backend, group: str) -> None:
        finish_seeks(backend, group)
        for offset in others:
            leave_pending(backend, offset)

    monkeypatch.setattr("tailrace.group.store.seek.finish_seeks", finish_and_be_overtaken)
    assert skip(backend, GROUP, Position("orders", 0, 0, second))
    assert {first, second}.isdisjoint(holes(backend, "orders/0.0"))


def test_a_skip_that_another_change_overtook_is_retried(
    backend: Backend, orders: Topic[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = offsets(orders, 0)[2:4]
    others = iter([first])

    def be_overtaken(backend: Backend, *arguments: Any) -> Change:
        change = pending_change(backend, *arguments)
        for offset in others:
            assert skip(backend, GROUP, Position("orders", 0, 0, offset))
        return change

    monkeypatch.setattr("tailrace.group.store.seek.pending_change", be_overtaken)
    assert skip(backend, GROUP, Position("orders", 0, 0, second))
    assert {first, second}.isdisjoint(holes(backend, "orders/0.0"))


def test_the_delivered_offset_is_kept_over_a_skip(backend: Backend, orders: Topic[Any]) -> None:
    units = ["orders/0.0", "orders/0.1"]
    handed_out = {handed_out_key(GROUP, unit): handed_out_value(9) for unit in units}
    backend.commit(Transaction(table=handed_out))
    assert skip(backend, GROUP, Position("orders", 0, 0, offsets(orders, 0)[2]))
    assert [read_handed_out(backend.table, GROUP, unit) for unit in units] == [9, 9]


def test_a_late_finisher_of_a_skip_overwrites_nothing_newer(
    clock: ManualClock,
) -> None:
    backend = MemoryBackend()
    fill(Hub.from_backend(backend).create_topic("orders", partitions=1))
    open_group(backend, GROUP, "orders", "earliest", clock)
    for pause in range(STEPS):
        leave_pending(backend, 4)
        late = finishing(backend, GROUP, "orders")
        for _ in range(pause):
            next(late)
        finish_pending(backend, GROUP, "orders")
        fence = owner(backend, lead(backend), "orders/0.0")
        ack(backend, "orders/0.0", 0, 2, fence)
        ack(backend, "orders/0.0", 6, 8, fence)
        list(late)
        assert [hole for hole in holes(backend, "orders/0.0") if hole < 10] == [2, 3, 5, 8, 9]
        ack(backend, "orders/0.0", 8, 9, fence)
        seek(backend, GROUP, "earliest")


@pytest.mark.parametrize("reason", ["", "  ", None])
def test_a_skip_needs_a_reason(orders: Topic[Any], hub: Hub, reason: Any) -> None:
    position = f"orders/0.0@{offsets(orders, 0)[0]}"
    with pytest.raises(InvalidValue, match=r"reason is .* a text that explains the change"):
        hub.group(GROUP).skip(position, reason=reason)
    assert hub.group(GROUP).skip(position, reason=" bad ")
    assert hub.group(GROUP).history()[-1].why == f"{position}: bad"


@pytest.mark.parametrize("position", [4, None, ("orders", 0, 0, 4)])
def test_a_skip_of_an_invalid_position_is_refused(
    orders: Topic[Any], hub: Hub, position: Any
) -> None:
    with pytest.raises(InvalidValue, match=r"position is .* 'orders/1.7@42'"):
        hub.group(GROUP).skip(position, reason="bad")


def test_after_a_skip_a_blocked_key_continues_and_other_partitions_are_not_disturbed(
    hub: Hub, orders: Topic[Any]
) -> None:
    group = hub.group(GROUP)
    bad, other = key_of(orders, 0), key_of(orders, 1)
    taken: dict[str | None, list[int]] = {bad: [], other: []}
    kept: list[Delivery[Any]] = []

    def consume(consumer: Consumer[Any]) -> None:
        """Nack a message of the one key, and keep the first of the other in flight."""
        for delivery in consumer:
            taken[delivery.key].append(delivery.value)
            if delivery.key == other:
                kept.append(delivery)
            elif delivery.value == 3:
                delivery.nack()
            else:
                delivery.ack(wait=True)
            if taken[bad][-1:] == [9]:
                return

    def epochs() -> dict[str, int | None]:
        return {stream.partition: stream.epoch for stream in group.describe().partitions}

    with hub.tail("orders", group=GROUP, ack="manual", attempts=1) as consumer:
        with pytest.raises(DeliveryFailed) as failed:
            consume(consumer)
        before = epochs()
        assert group.skip(failed.value.position, reason="it cannot be done")
        consume(consumer)
        after = epochs()
        for delivery in kept:
            delivery.ack(wait=True)
    assert taken[bad] == list(range(10))
    assert after["orders/0.1"] == before["orders/0.1"]
    assert after["orders/0.0"] != before["orders/0.0"]
    with hub.tail("orders", group=GROUP, until="end") as consumer:
        taken[other] += [delivery.value for delivery in consumer]
    assert taken[other] == list(range(10))
    [line] = [line for line in group.history() if line.what == "skip"]
    assert line.why == f"{failed.value.position}: it cannot be done"
    assert not group.skip(failed.value.position, reason="once more")
