"""The sizes of reads: small at first and after a jump, larger when they follow one another."""

from __future__ import annotations

from tailrace.message import Partition
from tailrace.subscription.shard.read_sizes import FIRST_BYTES, NEAR, ReadSizes

ORDERS, OTHERS = Partition("orders", 0, 0), Partition("orders", 0, 1)
MOST = 5 * FIRST_BYTES


def test_reads_that_follow_one_another_grow_up_to_the_most() -> None:
    sizes = ReadSizes()
    found = []
    for start in (0, 100, 200, 300):
        found.append(sizes.next(ORDERS, start, MOST))
        sizes.ended(ORDERS, start + 100 - NEAR)
    assert found == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, MOST]


def test_a_read_after_a_jump_is_small() -> None:
    sizes = ReadSizes()
    for start, end in ((0, 100), (100, 200)):
        sizes.next(ORDERS, start, MOST)
        sizes.ended(ORDERS, end)
    assert sizes.next(OTHERS, 200, MOST) == FIRST_BYTES
    assert sizes.next(ORDERS, 200 + NEAR + 1, MOST) == FIRST_BYTES
    sizes.ended(ORDERS, 300)
    assert sizes.next(ORDERS, 299, MOST) == FIRST_BYTES, "back"


def test_no_read_is_larger_than_the_most() -> None:
    assert ReadSizes().next(ORDERS, 0, 400) == 400
