"""Delivery of one record at a time, after a failure: thousands a second, in the driver.

Each record is acknowledged by itself. The ledger is committed at the progress interval, at a
failure and at the end. So after a crash only the last records are delivered again, and none to a
sink that stores its offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.error_text import storable
from tailrace.pipeline.offsets import Offsets, merge_ranges
from tailrace.pipeline.transform.rows import RowError
from tailrace.pipeline.writer import WriterSession
from tailrace.pipeline.writing.attempt import CoveredRows, cover_rest, describe_error
from tailrace.pipeline.writing.fault import Fault, fault_of
from tailrace.pipeline.writing.plan import PlanPart, StagedPart, WritePlan
from tailrace.pipeline.writing.plan_engine import PendingPart

if TYPE_CHECKING:
    from tailrace.pipeline.writing.writer_run import WriterRun


def deliver_one_at_a_time(run: WriterRun, plan: WritePlan) -> None:
    """Deliver the rest of a plan, until done, stopped or failed at a record that is not parked."""
    for part in plan.parts:
        while not run.failed and not run.stopping.is_set():
            if _deliver_some(run, plan, part):
                break
    if not run.failed and not run.stopping.is_set():
        run.finish_plan()


def _deliver_some(run: WriterRun, plan: WritePlan, part: PlanPart) -> bool:
    """Deliver until the next commit is due; True if the part is done."""
    plan_round = run.new_round(plan)
    session = run.engine.open(plan_round, part)
    result = _SessionResult()
    failure: Exception | None = None
    try:
        try:
            _, done = run.pending(part)
            left = PendingPart(part, merge_ranges([*done, *session.applied()]))
            _deliver(run, run.engine.one_at_a_time(plan_round, left), session, result)
            if result.whole:
                end = max((each.end for each in result.delivered), default=part.start)
                cover_rest(session, Offsets(end, part.end))
        except RowError as failed:
            result.refused = failed.offset, failed.reason
        except Exception as failed:
            failure = failed
        staged = session.finish()
    except Exception as failed:
        raise failure or failed from None
    finally:
        session.close()
    written = [part.offsets] if result.whole else merge_ranges(result.delivered)
    run.acknowledge(
        plan,
        [StagedPart(part.partition, each) for each in staged],
        [PlanPart(part.partition, *each) for each in written],
        result.rows,
    )
    if failure is not None:
        raise failure
    if result.refused is not None:
        offset, error = result.refused
        run.handle_refused(plan, part, offset, storable(error))
    return result.whole


@dataclass(slots=True)
class _SessionResult:
    """The result of one session: `refused` is the record that ended it, with the error.

    `whole` is True if no record of the part is left.
    """

    delivered: list[Offsets] = field(default_factory=list)
    rows: int = 0
    refused: tuple[int, str] | None = None
    whole: bool = False


def _deliver(
    run: WriterRun, records: Iterable[CoveredRows], session: WriterSession, result: _SessionResult
) -> None:
    due = run.clock.monotonic() + run.progress_interval_s
    for record in records:
        error = _write(session, record)
        if error is not None:
            result.refused = record.offsets.end - 1, error
            return
        result.delivered.append(record.offsets)
        result.rows += len(record.rows)
        if run.stopping.is_set() or run.clock.monotonic() >= due:
            return
    result.whole = True


def _write(session: WriterSession, covered: CoveredRows) -> str | None:
    """Write one record to a session; return the error if the sink refused the record.

    Raises the errors that no record causes: an outage, a refusal of the writer, `Fenced`.
    """
    try:
        failures = session.write(covered.rows, covered.offsets)
    except Exception as error:
        if fault_of(error) is not Fault.RECORD:
            raise
        return describe_error(error)
    return failures[0].error if failures else None
