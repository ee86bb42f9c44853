"""The places that every partition has."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Bounds
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.offset_search import offset_at
from tailrace.topic.offset_spec import Extreme


@pytest.mark.parametrize(("spec", "offset"), [(Extreme.EARLIEST, 3), (Extreme.LATEST, 9)])
def test_earliest_and_latest_are_the_bounds_of_the_remaining_records(
    spec: Extreme, offset: int
) -> None:
    partition = Partition("orders", 0, 0)
    assert offset_at(MemoryBackend().log, partition, Bounds(3, 9, sealed=False), spec) == offset
