"""A message of a partition that several shards are fed from is done when all of them say so."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tailrace.message import Partition
from tailrace.subscription.layout.feeding import feeder_ledger, held_by_all, merged
from tailrace.topic.ledger import Progress

WHERE = Partition("rq", 0, 3)
END = 12
OWNERS = st.lists(st.sampled_from(["0", "1", "2", None]), min_size=END, max_size=END)


def offsets(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {offset for first, after in ranges for offset in range(first, after)}


@given(st.lists(st.sets(st.integers(0, END - 1)), max_size=4))
def test_what_all_hold_is_the_intersection(acked: list[set[int]]) -> None:
    ledgers = []
    for each in acked:
        ledger = Progress("c", WHERE)
        for offset in each:
            ledger.ack(offset, offset + 1)
        ledgers.append(ledger)
    expected = set(range(END)).intersection(*acked) if acked else set(range(END))
    assert offsets(held_by_all(ledgers, END)) == expected


@given(OWNERS, st.sets(st.integers(0, END - 1)))
def test_a_message_is_done_once_its_own_feeder_has_done_it(
    owners: list[str | None], done: set[int]
) -> None:
    """Those without an owner were done before: no feeder has them."""
    feeders = {}
    for unit in {each for each in owners if each is not None}:
        own = [offset for offset in range(END) if owners[offset] == unit]
        feeders[unit] = feeder_ledger("c", WHERE, unit, own, END)
        assert offsets(feeders[unit].holes(END)) == set(own)
    base = Progress("c", WHERE)
    for offset in range(END):
        owner = owners[offset]
        if owner is None:
            base.ack(offset, offset + 1)
        elif offset in done:
            feeders[owner].ack(offset, offset + 1)
    left = {offset for offset in range(END) if owners[offset] is not None and offset not in done}
    assert offsets(merged(base, list(feeders.values()), END).holes(END)) == left


def test_without_feeders_the_ledger_of_the_partition_says_what_is_done() -> None:
    base = Progress("c", WHERE, 5)
    assert offsets(merged(base, [], END).holes(END)) == set(range(5, END))


def test_the_ledgers_of_feeders_have_keys_of_their_own() -> None:
    ledger = feeder_ledger("c", WHERE, "1.2", [3], 6)
    assert {key.key for key in ledger.writes()} == {
        b"@1.2/rq/0.3/mark",
        b"@1.2/rq/0.3/block/" + bytes(8),
    }
