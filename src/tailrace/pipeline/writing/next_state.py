"""The next state of a writer, from the one before."""

from __future__ import annotations

import msgspec

from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.failure import WriterFailure
from tailrace.pipeline.writing.sink_outage import SinkOutage
from tailrace.pipeline.writing.writer_ledger import WriterState


def next_state(
    before: WriterState, status: WriterStatus, now_ms: int, rows: int = 0, parked: int = 0
) -> WriterState:
    """Return the state after `rows` more were delivered and `parked` more records were parked."""
    since_ms = before.since_ms if before.state is status else now_ms
    return WriterState(status, before.rows + rows, before.parked + parked, since_ms)


def failed_state(
    before: WriterState, failure: WriterFailure, now_ms: int, rows: int = 0
) -> WriterState:
    """Return the state of a writer that failed."""
    return msgspec.structs.replace(
        next_state(before, WriterStatus.FAILED, now_ms, rows),
        error=failure.error,
        position=failure.position,
        valid_rewinds=failure.valid_rewinds,
    )


def waiting_state(before: WriterState, outage: SinkOutage, rows: int = 0) -> WriterState:
    """Return the state of a writer that waits for its sink, since the outage began."""
    return msgspec.structs.replace(
        next_state(before, WriterStatus.WAITING, outage.since_ms, rows),
        since_ms=outage.since_ms,
        error=outage.reason,
        tries=outage.tries,
        next_try_ms=outage.next_try_ms,
        waits_for=outage.waits_for,
    )
