"""Messages in lists are encoded with the least and the greatest of their timestamps."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailrace.log.messages import encode_messages
from tailrace.log.record import decode_records


@pytest.mark.parametrize("headers", [{}, {1: {"a": b"1"}}], ids=["plain", "headed"])
@pytest.mark.parametrize("even", [True, False], ids=["of one length", "of many lengths"])
@pytest.mark.parametrize("count", [3, 100, 1000])
def test_unsorted_timestamps_are_stored_with_their_bounds(
    count: int, even: bool, headers: Mapping[int, Mapping[str, bytes]]
) -> None:
    times = [500] * count
    times[1] = 3
    times[-2] = 900 if count > 3 else 3
    values = [b"v" * (1 if even else 1 + index % 5) for index in range(count)]
    encoded = encode_messages([b"k"] * count, values, times, headers)
    assert [row.timestamp for row in decode_records(encoded.stamp(0))] == times
    assert (encoded.first_timestamp, encoded.last_timestamp) == (min(times), max(times))
