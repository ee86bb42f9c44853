"""Each check of a simulated group finds its violation."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Fence, Transaction, raise_fence
from tailrace.group.store.definition import consumer_name, unit_fence
from tailrace.message import Partition
from tailrace.testing.groups import GroupWorld
from tailrace.testing.simulation import Violation
from tailrace.topic.ledger import Progress

GROUP = "billing"
UNIT = "orders/0.0"
LATER = 1000
"""An epoch beyond all that has happened."""


class Someone:
    """A session that may deliver from every unit it claims to own."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.group = GROUP

    def may_deliver(self, unit: str, epoch: int) -> bool:
        return True


@pytest.fixture
def world() -> GroupWorld:
    """A group that shares a topic of one partition, with three messages of one key, and whose unit
    was granted since it began."""
    world = GroupWorld(1)
    world.topic("orders", partitions=1)
    world.group(GROUP, "orders")
    for number in range(3):
        world.push("orders", number, key="k")
    raise_fence(world.storage.store, unit_fence(GROUP, UNIT))
    return world


def epoch_of(world: GroupWorld, unit: str = UNIT) -> int:
    """The epoch under which an owner of the unit may write now."""
    return world.storage.fenced_at(GROUP, unit)


def acknowledge(world: GroupWorld, end: int) -> None:
    """Write to the ledger that all below an offset is done, under the fence of the unit."""
    progress = Progress(consumer_name(GROUP), Partition.parse(UNIT))
    progress.ack(0, end)
    fence = Fence(unit_fence(GROUP, UNIT), epoch_of(world))
    world.storage.commit(Transaction(table=progress.writes(), fence=fence))


def deliver(world: GroupWorld, offset: int, *, unit: str = UNIT, again: bool = False) -> None:
    world.checks.delivered(Someone("a"), unit, epoch_of(world, unit), offset, again)


def test_two_consumers_that_may_deliver_from_one_unit_are_found_at_the_next_step(
    world: GroupWorld,
) -> None:
    for number, name in enumerate("ab"):
        world.checks.acquired(Someone(name), UNIT, LATER + number)
    world.at(1.0, lambda: None)
    with pytest.raises(Violation, match=r"a and b may both deliver orders/0\.0"):
        world.run(2.0)


def test_a_consumer_that_has_not_learned_of_a_seek_is_no_second_owner(world: GroupWorld) -> None:
    world.checks.acquired(Someone("a"), UNIT, epoch_of(world))
    world.seek(GROUP, "earliest")
    world.checks.acquired(Someone("b"), UNIT, LATER)
    world.checks.check_owners()


def test_a_redelivered_message_must_be_marked(world: GroupWorld) -> None:
    deliver(world, 0)
    deliver(world, 0, again=True)
    with pytest.raises(Violation, match=r"delivers orders/0\.0@0 again and does not mark it"):
        deliver(world, 0)


def test_a_message_redelivered_after_a_seek_need_not_be_marked(world: GroupWorld) -> None:
    deliver(world, 0)
    world.seek(GROUP, "earliest")
    deliver(world, 0)


def test_an_acknowledged_message_must_not_be_delivered(world: GroupWorld) -> None:
    acknowledge(world, 1)
    deliver(world, 1)
    with pytest.raises(Violation, match=r"delivers orders/0\.0@0, which the ledger holds"):
        deliver(world, 0)


def test_nothing_may_be_delivered_before_the_units_it_follows_are_finished(
    world: GroupWorld,
) -> None:
    world.scale("orders", 2)
    child = world.push("orders", 3, key="k")
    unit = f"orders/{child.storage}.{child.partition}"
    with pytest.raises(Violation, match=r"while orders/0\.0 is not finished"):
        deliver(world, child.offset, unit=unit)
    acknowledge(world, 3)
    deliver(world, child.offset, unit=unit)


def test_a_message_may_not_be_acknowledged_before_an_earlier_one_of_its_key(
    world: GroupWorld,
) -> None:
    with pytest.raises(Violation, match=r"handled message 2 of key .* before 1"):
        world.checks.succeeded(Someone("a"), UNIT, 1)


def test_after_a_seek_to_the_beginning_order_is_as_strict_as_before(world: GroupWorld) -> None:
    world.seek(GROUP, "earliest")
    with pytest.raises(Violation, match=r"handled message 2 of key .* before 1"):
        world.checks.succeeded(Someone("a"), UNIT, 1)


def test_after_a_seek_forward_messages_may_be_missing(world: GroupWorld) -> None:
    world.seek(GROUP, "latest")
    world.checks.succeeded(Someone("a"), UNIT, 1)
    world.run_until_consumed()


def test_only_a_seek_may_lower_progress(world: GroupWorld) -> None:
    acknowledge(world, 3)
    with pytest.raises(Violation, match=f"the progress of {GROUP} in {UNIT} falls from 3 to 1"):
        acknowledge(world, 1)
    world.seek(GROUP, "earliest")


def test_only_the_owner_of_a_unit_may_write(world: GroupWorld) -> None:
    with pytest.raises(Violation, match=r"wrote for orders/0\.0 under epoch 1000, which has ended"):
        world.checks.committed(Someone("a"), UNIT, LATER)


def test_an_acknowledged_message_that_no_handler_saw_is_lost(world: GroupWorld) -> None:
    world.checks.succeeded(Someone("a"), UNIT, 0)
    acknowledge(world, 3)
    with pytest.raises(Violation, match=r"billing has lost \[.*number=2.*number=3"):
        world.run_until_consumed()


def test_a_message_that_was_never_acknowledged_is_not_consumed(world: GroupWorld) -> None:
    acknowledge(world, 2)
    with pytest.raises(Violation, match=r"after 5 s billing has not consumed orders/0\.0"):
        world.run_until_consumed(within_s=5)


@pytest.mark.parametrize(("owners", "words"), [(0, "is owned by nobody"), (2, "is owned by a, b")])
def test_a_unit_without_exactly_one_owner_at_the_end_is_found(
    world: GroupWorld, owners: int, words: str
) -> None:
    world.process("p").consumer(GROUP, "orders")
    acknowledge(world, 3)
    for name in "ab"[:owners]:
        world.checks.acquired(Someone(name), UNIT, epoch_of(world))
    assert words in "; ".join(world.outstanding())
