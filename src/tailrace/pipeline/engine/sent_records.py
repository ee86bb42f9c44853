"""Records that travel between the driver and its executors, as compressed Arrow streams.

The driver sends records to executors that cannot read the hub. Executors send transformed rows back
if only the driver can write the sink. Both are bounded in bytes: a part that is larger is cut, and
later plans deliver its rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tailrace.backend.contract import Log
from tailrace.errors import BackendUnavailable, Error
from tailrace.log.schema import SCHEMA
from tailrace.pipeline.transform.rows import RowError
from tailrace.pipeline.writer import SinkRefused
from tailrace.pipeline.writing.attempt import describe_error
from tailrace.pipeline.writing.fault import Fault, fault_of
from tailrace.pipeline.writing.plan import PlanPart
from tailrace.pipeline.writing.plan_engine import PendingPart

PART_BYTES_MAX: Final = 16 << 20
"""The approximate number of bytes of records that travel with one task."""

JOB_BYTES_MAX: Final = 64 << 20
"""The approximate number of bytes of records that travel with one job."""

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class TaskFailure(msgspec.Struct, frozen=True):
    """An error of a task that read and transformed records: `offset` is that of a bad record."""

    reason: str
    fault: Fault
    offset: int | None = None

    @classmethod
    def of(cls, error: Exception) -> TaskFailure:
        """Return the failure for an error."""
        if isinstance(error, RowError):
            return cls(error.reason, Fault.RECORD, error.offset)
        return cls(describe_error(error), fault_of(error))

    def error(self) -> Error:
        """Return an error of the same meaning, to be raised in the driver."""
        if self.offset is not None:
            return RowError(self.offset, self.reason)
        if self.fault is Fault.OUTAGE:
            return BackendUnavailable(self.reason)
        return SinkRefused(self.reason) if self.fault is Fault.REFUSAL else Error(self.reason)


def pack(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return records in `tailrace.log.schema.SCHEMA` as bytes."""
    output = pa.BufferOutputStream()
    with pa.ipc.new_stream(output, SCHEMA, options=_OPTIONS) as stream:
        for batch in batches:
            stream.write_batch(batch if batch.schema == SCHEMA else batch.cast(SCHEMA))
    return output.getvalue().to_pybytes()


def unpack(data: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the packed records; no batch is empty."""
    with pa.ipc.open_stream(data) as stream:
        yield from filter(len, stream)


def cut_part(log: Log, part: PlanPart, bytes_max: int = PART_BYTES_MAX) -> PlanPart:
    """Return the beginning of a part that has about `bytes_max` bytes, or the whole part.

    It has at least one offset.
    """
    end = part.end
    while end > part.start + 1:
        size = log.amount(part.where, part.start, end).bytes
        if size <= bytes_max:
            break
        end = max(part.start + 1, part.start + (end - part.start) * bytes_max // size)
    return PlanPart(part.partition, part.start, end)


def group_parts(
    log: Log, parts: Sequence[PendingPart], bytes_max: int = JOB_BYTES_MAX
) -> Iterator[list[PendingPart]]:
    """Yield parts in groups of about `bytes_max` bytes, in order; at least one part in each."""
    group: list[PendingPart] = []
    group_bytes = 0
    for each in parts:
        size = log.amount(each.part.where, each.part.start, each.part.end).bytes
        if group and group_bytes + size > bytes_max:
            yield group
            group, group_bytes = [], 0
        group.append(each)
        group_bytes += size
    if group:
        yield group
