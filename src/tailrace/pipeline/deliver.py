"""One attempt at a part of a plan: read, leave out what is done, transform, write, report.

The same on an executor of Spark and in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tailrace.errors import Fenced
from tailrace.log.schema import from_records
from tailrace.pipeline.chain import Chain
from tailrace.pipeline.offsets import Offsets, united, without
from tailrace.pipeline.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged, Writer, WriterSession

_TOLD_CHARACTERS_MAX: Final = 1000
_NO_ROWS: Final = Rows(from_records([]))


class Covered(NamedTuple):
    """Rows, and the offsets that they are all of: what a chain left of the records there."""

    rows: Rows
    offsets: Offsets


class Report(msgspec.Struct, frozen=True):
    """What came of an attempt.

    `written` is certain, in the sink or in `staged`; `failures` are certainly not written. With an
    `error` the attempt ended there. `sink_failed` says that the error is the sink's, not that of
    any record; `fenced` that a newer attempt has taken over; `stopped` that it was asked to end.
    What failed lies below `failed_below`: it was not tried what comes behind.
    """

    written: tuple[Offsets, ...] = ()
    staged: tuple[Staged, ...] = ()
    rows: int = 0
    failures: tuple[Failure, ...] = ()
    error: str | None = None
    sink_failed: bool = False
    fenced: bool = False
    stopped: bool = False
    failed_below: int | None = None

    @property
    def failed(self) -> bool:
        """Whether anything went wrong."""
        return self.error is not None or bool(self.failures)


def is_of_the_sink(error: Exception) -> bool:
    """Whether an error of a session says something of the sink, rather than of a record."""
    return isinstance(error, OSError) or bool(getattr(error, "retryable", False))


def told(error: Exception) -> str:
    """An error in a line, and not a very long one."""
    text = " ".join(str(error).split())[:_TOLD_CHARACTERS_MAX]
    return text if isinstance(error, RowError) else f"{type(error).__name__}: {text}"


def covered(
    batches: Iterable[pa.RecordBatch], offsets: Offsets, done: Sequence[Offsets]
) -> Iterator[Covered]:
    """Records as they were read, less those that are done, with the offsets each batch covers."""
    at = offsets.start
    for batch in batches:
        numbers = batch["offset"].to_numpy()
        end = int(numbers[-1]) + 1
        keep = np.ones(len(numbers), dtype=bool)
        for start, stop in done:
            keep[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] = False
        if not keep.all():
            batch = batch.filter(pa.array(keep))
        yield Covered(Rows(batch), Offsets(at, end))
        at = end


def make_attempt(
    writer: Writer,
    chain: Chain,
    attempt: Attempt,
    done: Sequence[Offsets],
    read: Callable[[], Iterable[pa.RecordBatch]],
    stopping: Callable[[], bool],
) -> Report:
    """Deliver what is not done of an attempt's offsets, as `read` gives them in order, until all
    is delivered, something fails, or it is to stop."""
    try:
        session = writer.open(attempt)
    except Exception as error:
        return _failed(error, attempt.offsets.end)
    try:
        held = session.applied()
    except Exception as error:
        session.close()
        return _failed(error, attempt.offsets.end)
    batches = (
        Covered(chain.apply(rows), offsets)
        for rows, offsets in covered(read(), attempt.offsets, united([*done, *held]))
    )
    return deliver(batches, attempt.offsets, session, stopping)


def deliver(
    batches: Iterable[Covered],
    offsets: Offsets,
    session: WriterSession,
    stopping: Callable[[], bool],
) -> Report:
    """Give all batches to a session. The iterator reads and transforms; what it raises is a
    failure of its records."""
    written: list[Offsets] = []
    failures: list[Failure] = []
    rows = 0
    error: Exception | None = None
    at = end = offsets.start
    stopped = True
    try:
        for batch in batches:
            end = batch.offsets.end
            refused = session.write(batch.rows, batch.offsets)
            failures += refused
            written += without(batch.offsets, [failure.offset for failure in refused])
            rows += len(batch.rows) - len(refused)
            at = end
            if stopping():
                break
        else:
            cover_rest(session, Offsets(at, offsets.end))
            written.append(Offsets(at, offsets.end))
            stopped = False
    except RowError as failed:
        error, end = failed, failed.offset + 1
        failures.append(Failure(failed.offset, failed.reason))
    except Exception as failed:
        error = failed
    try:
        staged = tuple(session.finish())
    except Exception as failed:
        error, end = error or failed, offsets.end
        written, staged, rows = [], (), 0
    finally:
        session.close()
    below = end if error is not None else max((f.offset + 1 for f in failures), default=None)
    report = _failed(error, below) if error is not None else Report(failed_below=below)
    return msgspec.structs.replace(
        report,
        written=tuple(united(written)),
        staged=staged,
        rows=rows,
        failures=tuple(failures),
        stopped=stopped and error is None,
    )


def cover_rest(session: WriterSession, offsets: Offsets) -> None:
    """Tell a session of the last offsets of its part, which have no rows, so that the record of its
    sink, if it keeps one, ends where the part does."""
    if offsets.start < offsets.end:
        session.write(_NO_ROWS, offsets)


def _failed(error: Exception, below: int | None) -> Report:
    return Report(
        error=told(error),
        sink_failed=is_of_the_sink(error),
        fenced=isinstance(error, Fenced),
        failed_below=below,
    )
