"""Attempts are stored under the origin of a message, and judged by the next owner."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidValue
from tailrace.message import Partition
from tailrace.subscription.shard.attempts import (
    DIED,
    Attempts,
    Begun,
    Origin,
    attempts_key,
    attempts_prefix,
    decode_attempts,
    encode_attempts,
    origin_of_key,
    taken_over,
)

WHERE = Partition("orders", 1, 7)


@pytest.mark.parametrize("origin", [Origin(WHERE, 42), Origin(WHERE, 42, 3)])
def test_an_origin_is_written_as_people_read_it(origin: Origin) -> None:
    assert Origin.parse(str(origin)) == origin
    assert str(origin) == ("orders/1.7@42+r3" if origin.reset else "orders/1.7@42")


@pytest.mark.parametrize("text", ["orders/1.7", "orders/1.7@x", "orders/1.7@4+r", "orders@3", ""])
def test_other_text_is_no_origin(text: str) -> None:
    with pytest.raises(InvalidValue):
        Origin.parse(text)


def test_the_keys_of_a_partition_are_in_the_order_of_offsets() -> None:
    origins = [Origin(WHERE, offset) for offset in (0, 9, 10, 1 << 40)]
    keys = [attempts_key("crm", origin).key for origin in origins]
    assert keys == sorted(keys)
    assert [origin_of_key(key) for key in keys] == origins
    assert all(key.startswith(attempts_prefix(WHERE)) for key in keys)
    assert not keys[0].startswith(attempts_prefix(Partition("orders", 1, 70)))


def test_attempts_without_content_are_removed() -> None:
    assert encode_attempts(Attempts()) is None
    begun = Attempts().begin(Begun.SHARED, "w1")
    stored = encode_attempts(begun)
    assert stored is not None
    assert decode_attempts(stored) == begun


def test_a_failure_keeps_the_time_of_the_first_one() -> None:
    first = Attempts().failed("no stock", 1000, 2000)
    second = first.begin(Begun.SHARED).failed("no answer", 3000, 4000)
    assert second == Attempts(2, 4000, Begun.NO, "no answer", 1000)


@pytest.mark.parametrize(
    ("begun", "ended", "count", "suspect"),
    [
        (Begun.NO, {"w1"}, 1, False),
        (Begun.SHARED, {"w1"}, 1, True),
        (Begun.ALONE, {"w1"}, 2, True),
        (Begun.ALONE, set[str](), 1, True),
    ],
)
def test_a_call_counts_if_it_was_alone_in_a_process_that_ended(
    begun: Begun, ended: set[str], count: int, suspect: bool
) -> None:
    found = taken_over(Attempts(1, error="no stock").begin(begun, "w1"), ended)
    assert (found.attempts.count, found.suspect) == (count, suspect)
    assert found.attempts.begun is Begun.NO
    assert (found.attempts.error == DIED) == (count == 2)
