"""The places that every partition has."""

from __future__ import annotations

import pytest

from tailrace.backend.contract import Bounds
from tailrace.message import Partition
from tailrace.testing import MemoryBackend
from tailrace.topic.edge import Extreme, offset_at


@pytest.mark.parametrize(("edge", "offset"), [(Extreme.EARLIEST, 3), (Extreme.LATEST, 9)])
def test_the_ends_are_those_of_what_a_partition_still_holds(edge: Extreme, offset: int) -> None:
    partition = Partition("orders", 0, 0)
    assert offset_at(MemoryBackend().log, partition, Bounds(3, 9, sealed=False), edge) == offset
