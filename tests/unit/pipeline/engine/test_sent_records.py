"""Records on their way between the driver and executors: whole, and bounded in bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import BackendUnavailable
from tailrace.message import Partition
from tailrace.pipeline.engine.sent_records import (
    TaskFailure,
    cut_part,
    group_parts,
    pack,
    unpack,
)
from tailrace.pipeline.transform.rows import RowError
from tailrace.pipeline.writing.fault import Fault, fault_of
from tailrace.pipeline.writing.plan import PlanPart
from tailrace.pipeline.writing.plan_engine import PendingPart
from tailrace.testing import MemoryBackend
from tailrace.topic.reading import batches_within

ROWS = 1000
WHERE = Partition("orders", 0, 0)


@pytest.fixture
def hub() -> tailrace.Hub:
    hub = tailrace.Hub.from_backend(MemoryBackend())
    hub.create_topic("orders", partitions=1).push_many(
        (f"k{n}", {"text": "x" * 100}) for n in range(ROWS)
    )
    return hub


def test_records_arrive_as_they_were_sent(hub: tailrace.Hub) -> None:
    batches = list(batches_within(hub.backend.log, WHERE, 10, 900, bytes_max=10_000))
    assert len(batches) > 1
    received = pa.Table.from_batches(unpack(pack(batches)))
    assert received.equals(pa.Table.from_batches(batches))


def test_a_part_without_records_arrives_empty() -> None:
    assert list(unpack(pack([]))) == []


def test_a_part_is_cut_to_a_number_of_bytes(hub: tailrace.Hub) -> None:
    log, part = hub.backend.log, PlanPart(str(WHERE), 100, ROWS)
    assert cut_part(log, part, 1 << 20) == part
    cut = cut_part(log, part, 20_000)
    assert cut.start == 100
    assert 50 < cut.end - cut.start < 300
    assert log.amount(WHERE, cut.start, cut.end).bytes <= 20_000


def test_a_part_has_one_record_however_large_it_is(hub: tailrace.Hub) -> None:
    part = PlanPart(str(WHERE), 100, ROWS)
    assert cut_part(hub.backend.log, part, 1) == PlanPart(str(WHERE), 100, 101)


def test_jobs_are_bounded_in_bytes_and_keep_the_order_of_their_parts(hub: tailrace.Hub) -> None:
    parts = [PendingPart(PlanPart(str(WHERE), n, n + 100), ()) for n in range(0, ROWS, 100)]
    size = hub.backend.log.amount(WHERE, 0, 100).bytes
    groups = list(group_parts(hub.backend.log, parts, 3 * size + size // 2))
    assert [each for group in groups for each in group] == parts
    assert [len(group) for group in groups] == [3, 3, 3, 1]
    assert [len(group) for group in group_parts(hub.backend.log, parts, 1)] == [1] * 10


def test_the_error_of_a_task_means_the_same_in_the_driver() -> None:
    refused = TaskFailure.of(RowError(7, "no number")).error()
    assert isinstance(refused, RowError)
    assert (refused.offset, refused.reason) == (7, "no number")
    for error in (BackendUnavailable("gone"), OSError(5, "broken"), ValueError("odd")):
        assert fault_of(TaskFailure.of(error).error()) is fault_of(error)
    assert TaskFailure.of(ValueError("odd")).fault is Fault.RECORD
