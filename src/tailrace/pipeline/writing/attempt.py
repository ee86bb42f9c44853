"""One attempt at a part of a plan: read, leave out applied records, transform, write, report.

Spark executors and the driver run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tailrace.error_text import storable
from tailrace.errors import BackendUnavailable
from tailrace.log.schema import from_records
from tailrace.pipeline.offsets import Offsets, merge_ranges, subtract_offsets
from tailrace.pipeline.transform.chain import Chain
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, Staged, Writer, WriterSession
from tailrace.pipeline.writing.fault import Fault, fault_of, fault_without_records

_NO_ROWS: Final = Rows(from_records([]))


class CoveredRows(NamedTuple):
    """The rows of a range of offsets, after the chain.

    `offsets` also covers the dropped records. `applied_rows` is the number of rows among them that
    an earlier attempt wrote, and that nobody has counted.
    """

    rows: Rows
    offsets: Offsets
    applied_rows: int = 0


class AttemptReport(msgspec.Struct, frozen=True):
    """The result of an attempt.

    `written` is certainly in the sink or in `staged`; `failures` are certainly not written. An
    `error` ended the attempt, and `fault` is its cause. `stopped` means that the attempt was asked
    to stop. All failures lie below `failed_below`; the offsets from there on were not tried. `rows`
    are those of `written`, also the ones that an earlier attempt wrote and could not report.
    """

    written: tuple[Offsets, ...] = ()
    staged: tuple[Staged, ...] = ()
    rows: int = 0
    failures: tuple[RefusedRecord, ...] = ()
    error: str | None = None
    fault: Fault | None = None
    stopped: bool = False
    failed_below: int | None = None

    @property
    def failed(self) -> bool:
        """True if the attempt had an error or the sink refused a record."""
        return self.error is not None or bool(self.failures)


def describe_error(error: Exception) -> str:
    """Return an error as one line of limited length, with its class unless the text says it all."""
    text = storable(" ".join(str(error).split()))
    says_all = isinstance(error, RowError | BackendUnavailable)
    return text if says_all else f"{type(error).__name__}: {text}"


def covered_rows(
    batches: Iterable[pa.RecordBatch], offsets: Offsets, done: Sequence[Offsets]
) -> Iterator[CoveredRows]:
    """Yield the records of each batch that are not done, with the offsets that it covers."""
    at = offsets.start
    for batch in batches:
        numbers = batch["offset"].to_numpy()
        end = int(numbers[-1]) + 1
        keep = np.ones(len(numbers), dtype=bool)
        for start, stop in done:
            keep[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] = False
        if not keep.all():
            batch = batch.filter(pa.array(keep))
        yield CoveredRows(Rows(batch), Offsets(at, end))
        at = end


def make_attempt(
    writer: Writer,
    chain: Chain,
    attempt: Attempt,
    done: Sequence[Offsets],
    read: Callable[[], Iterable[pa.RecordBatch]],
    stopping: Callable[[], bool],
) -> AttemptReport:
    """Write the offsets of an attempt that are not done, in the order in which `read` returns them.

    Ends when all are written, when the attempt fails, or when `stopping` returns True.
    """
    try:
        session = writer.open(attempt)
    except Exception as error:
        return _failed(error, fault_without_records(error), attempt.offsets.end)
    try:
        held = session.applied()
    except Exception as error:
        session.close()
        return _failed(error, fault_without_records(error), attempt.offsets.end)
    batches = _transformed(chain, covered_rows(read(), attempt.offsets, done), held)
    return write_batches(batches, attempt.offsets, session, stopping)


def _transformed(
    chain: Chain, batches: Iterable[CoveredRows], held: Sequence[Offsets]
) -> Iterator[CoveredRows]:
    """Yield rows after a chain, without those that the sink holds, which are only counted."""
    for rows, offsets, _ in batches:
        left = _outside(rows, held)
        if left is rows:
            yield CoveredRows(chain.apply(rows), offsets)
            continue
        numbers = set(left.offsets)
        applied = rows.where([offset not in numbers for offset in rows.offsets])
        yield CoveredRows(chain.apply(left), offsets, _count(chain, applied))


def _outside(rows: Rows, held: Sequence[Offsets]) -> Rows:
    """Return the rows outside of ranges of offsets; the same object if all are."""
    numbers = rows.records["offset"].to_numpy()
    keep = np.ones(len(numbers), dtype=bool)
    for start, stop in held:
        keep[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)] = False
    return rows if keep.all() else rows.where(keep.tolist())


def _count(chain: Chain, applied: Rows) -> int:
    """Count the rows of records that an earlier attempt wrote.

    If a function of now refuses one of them, its definition has changed since: it counts as a row.
    """
    try:
        return len(chain.apply(applied))
    except RowError:
        return len(applied)


def write_batches(
    batches: Iterable[CoveredRows],
    offsets: Offsets,
    session: WriterSession,
    stopping: Callable[[], bool],
) -> AttemptReport:
    """Write all batches to a session and finish it.

    `batches` reads and transforms; an exception of the iterator is a failure of its records.
    """
    written: list[Offsets] = []
    failures: list[RefusedRecord] = []
    rows = 0
    error: Exception | None = None
    at = end = offsets.start
    stopped = True
    try:
        for batch in batches:
            end = batch.offsets.end
            refused = session.write(batch.rows, batch.offsets)
            failures += refused
            written += subtract_offsets(batch.offsets, [failure.offset for failure in refused])
            rows += _accepted(batch.rows, refused) + batch.applied_rows
            at = end
            if stopping():
                break
        else:
            cover_rest(session, Offsets(at, offsets.end))
            written.append(Offsets(at, offsets.end))
            stopped = False
    except RowError as failed:
        error, end = failed, failed.offset + 1
        failures.append(RefusedRecord(failed.offset, failed.reason))
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
    report = AttemptReport(failed_below=below)
    if error is not None:
        report = _failed(error, fault_of(error), below)
    return msgspec.structs.replace(
        report,
        written=tuple(merge_ranges(written)),
        staged=staged,
        rows=rows,
        failures=tuple(RefusedRecord(f.offset, storable(f.error)) for f in failures),
        stopped=stopped and error is None,
    )


def _accepted(rows: Rows, refused: Sequence[RefusedRecord]) -> int:
    """Count the rows without those of refused records; a record may have several rows."""
    if not refused:
        return len(rows)
    offsets = {each.offset for each in refused}
    return sum(offset not in offsets for offset in rows.offsets)


def cover_rest(session: WriterSession, offsets: Offsets) -> None:
    """Write the last offsets of a part, which have no rows.

    So the offsets that a sink stores end where the part ends.
    """
    if offsets.start < offsets.end:
        session.write(_NO_ROWS, offsets)


def _failed(error: Exception, fault: Fault, below: int | None) -> AttemptReport:
    return AttemptReport(error=describe_error(error), fault=fault, failed_below=below)
