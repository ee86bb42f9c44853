"""Each check of a simulated group notices the one thing that it is there for."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Fence, Transaction, raise_fence
from tailrace.group.definition import consumer_name, unit_fence
from tailrace.message import Partition
from tailrace.testing.groups import GroupWorld
from tailrace.testing.simulation import Violation
from tailrace.topic.ledger import Progress

GROUP = "billing"
UNIT = "orders/0.0"
LATER = 1000
"""An epoch beyond all that has happened."""


class Someone:
    """A session that may hand out of whatever it says it holds."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.group = GROUP

    def may_hand_out(self, unit: str, epoch: int) -> bool:
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
    raise_fence(world.ground.store, unit_fence(GROUP, UNIT))
    return world


def epoch_of(world: GroupWorld, unit: str = UNIT) -> int:
    """The epoch under which an owner of the unit may write now."""
    return world.ground.fenced_at(GROUP, unit)


def acknowledge(world: GroupWorld, end: int) -> None:
    """Write to the ledger that all below an offset is done, under the fence of the unit."""
    progress = Progress(consumer_name(GROUP), Partition.parse(UNIT))
    progress.ack(0, end)
    fence = Fence(unit_fence(GROUP, UNIT), epoch_of(world))
    world.ground.commit(Transaction(table=progress.writes(), fence=fence))


def hand_out(world: GroupWorld, offset: int, *, unit: str = UNIT, again: bool = False) -> None:
    world.checks.handed_out(Someone("a"), unit, epoch_of(world, unit), offset, again)


def test_two_that_may_hand_out_of_one_unit_are_found_after_the_next_step(world: GroupWorld) -> None:
    for number, name in enumerate("ab"):
        world.checks.holds(Someone(name), UNIT, LATER + number)
    world.at(1.0, lambda: None)
    with pytest.raises(Violation, match=r"a and b may both hand out of orders/0\.0"):
        world.run(2.0)


def test_one_that_has_not_heard_of_a_seek_yet_is_no_second_owner(world: GroupWorld) -> None:
    world.checks.holds(Someone("a"), UNIT, epoch_of(world))
    world.seek(GROUP, "earliest")
    world.checks.holds(Someone("b"), UNIT, LATER)
    world.checks.nobody_shares_a_unit()


def test_what_comes_again_must_say_so(world: GroupWorld) -> None:
    hand_out(world, 0)
    hand_out(world, 0, again=True)
    with pytest.raises(Violation, match=r"hands out orders/0\.0@0 again without saying so"):
        hand_out(world, 0)


def test_what_a_seek_brings_back_need_not_say_so(world: GroupWorld) -> None:
    hand_out(world, 0)
    world.seek(GROUP, "earliest")
    hand_out(world, 0)


def test_what_the_ledger_holds_must_not_be_handed_out(world: GroupWorld) -> None:
    acknowledge(world, 1)
    hand_out(world, 1)
    with pytest.raises(Violation, match=r"hands out orders/0\.0@0, which the ledger holds"):
        hand_out(world, 0)


def test_nothing_may_be_handed_out_before_what_it_follows_is_finished(world: GroupWorld) -> None:
    world.scale("orders", 2)
    child = world.push("orders", 3, key="k")
    unit = f"orders/{child.storage}.{child.partition}"
    with pytest.raises(Violation, match=r"while orders/0\.0 is not finished"):
        hand_out(world, child.offset, unit=unit)
    acknowledge(world, 3)
    hand_out(world, child.offset, unit=unit)


def test_a_message_may_not_be_done_before_another_of_its_key(world: GroupWorld) -> None:
    with pytest.raises(Violation, match=r"has done message 2 of key .* before 1"):
        world.checks.succeeded(Someone("a"), UNIT, 1)


def test_after_a_seek_to_the_beginning_order_is_as_strict_as_before(world: GroupWorld) -> None:
    world.seek(GROUP, "earliest")
    with pytest.raises(Violation, match=r"has done message 2 of key .* before 1"):
        world.checks.succeeded(Someone("a"), UNIT, 1)


def test_after_a_seek_forward_messages_may_be_missing(world: GroupWorld) -> None:
    world.seek(GROUP, "latest")
    world.checks.succeeded(Someone("a"), UNIT, 1)
    world.settle()


def test_progress_must_not_fall_but_by_a_seek(world: GroupWorld) -> None:
    acknowledge(world, 3)
    with pytest.raises(Violation, match=f"the progress of {GROUP} in {UNIT} falls from 3 to 1"):
        acknowledge(world, 1)
    world.seek(GROUP, "earliest")


def test_whoever_writes_must_be_the_one_that_was_granted_the_unit(world: GroupWorld) -> None:
    with pytest.raises(Violation, match=r"wrote for orders/0\.0 under epoch 1000, which is over"):
        world.checks.owned(Someone("a"), UNIT, LATER)


def test_what_the_ledger_holds_and_no_handler_saw_is_lost(world: GroupWorld) -> None:
    world.checks.succeeded(Someone("a"), UNIT, 0)
    acknowledge(world, 3)
    with pytest.raises(Violation, match=r"billing has lost \[.*number=2.*number=3"):
        world.settle()


def test_what_was_never_acknowledged_is_not_consumed(world: GroupWorld) -> None:
    acknowledge(world, 2)
    with pytest.raises(Violation, match=r"after 5 s billing has not consumed orders/0\.0"):
        world.settle(within_s=5)


@pytest.mark.parametrize(("owners", "words"), [(0, "is owned by nobody"), (2, "is owned by a, b")])
def test_a_unit_that_has_not_one_owner_in_the_end_is_found(
    world: GroupWorld, owners: int, words: str
) -> None:
    world.process("p").consumer(GROUP, "orders")
    acknowledge(world, 3)
    for name in "ab"[:owners]:
        world.checks.holds(Someone(name), UNIT, epoch_of(world))
    assert words in "; ".join(world.unsettled())
