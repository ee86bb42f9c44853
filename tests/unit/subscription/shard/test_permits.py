"""The offsets that may be called are few, and stored compactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.subscription.shard.permits import (
    NO_PERMITS,
    Permits,
    decode_permits,
    encode_permits,
)
from tailrace.subscription.store.ledgers import read_ledgers
from tailrace.subscription.store.takeover import read_permits
from tests.support.shards import NAME, Shop, stored


@given(st.sets(st.integers(0, 1 << 60), max_size=50))
def test_offsets_are_decoded_as_they_were_encoded(offsets: set[int]) -> None:
    permits = decode_permits(encode_permits("w1", offsets))
    assert permits == (Permits("w1", frozenset(offsets)) if offsets else NO_PERMITS)


def test_without_offsets_there_is_no_entry() -> None:
    assert encode_permits("w1", []) is None
    assert decode_permits(None) == NO_PERMITS


def suspects(shop: Shop) -> int:
    """Return how many messages would be suspect if the owner ended now."""
    streams = stored(shop.backend).streams(0)
    ledgers = read_ledgers(shop.backend, stored(shop.backend), streams.mq)
    return sum(
        not ledgers[partition].acked(offset)
        for partition, permits in read_permits(shop.backend, NAME, streams).items()
        for offset in permits.offsets
    )


@pytest.mark.parametrize("keys", [1, 3, 20, 200], ids=lambda keys: f"{keys} keys")
@pytest.mark.parametrize("late_keys", [0, 100], ids=["", "then others"])
def test_permits_are_at_most_four_times_the_concurrency_beside_calls_in_flight(
    keys: int, late_keys: int
) -> None:
    shop, most = Shop(concurrency=4, partitions=2), 0
    for value in range(600):
        shop.push(f"k{value % keys}", value)
    owner = shop.owner()
    while owner.start_calls():
        most = max(most, suspects(shop))
        owner.finish(min(owner.in_flight))
        if late_keys and len(owner.calls) > 100:
            for value in range(1000, 1000 + late_keys):
                shop.push(f"late{value}", value)
            owner.machine.wake(owner.stored.streams(0).mq)
            late_keys = 0
    assert len(owner.calls) == len({value for value, _ in owner.calls}) >= 600
    assert most <= (4 + 1) * shop.concurrency
