"""Delivery of a plan in bulk: one attempt at each part, then publish and acknowledge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.errors import Fenced
from tailrace.pipeline.definition.settings import OnError
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.attempt import AttemptReport
from tailrace.pipeline.writing.failure import WriterFailure, failure_of
from tailrace.pipeline.writing.fault import Fault
from tailrace.pipeline.writing.plan import (
    PlanKind,
    PlanPart,
    StagedPart,
    WritePlan,
    unacknowledged_parts,
)

if TYPE_CHECKING:
    from tailrace.pipeline.writing.writer_run import WriterRun


def deliver_bulk(run: WriterRun, plan: WritePlan) -> None:
    """Deliver a plan, until done, stopped, waiting or failed. Raises `Fenced`."""
    reports = run.engine.run(
        run.new_round(plan), [run.pending(part) for part in plan.parts], run.stopping
    )
    if any(report.fault is Fault.FENCED for report in reports):
        fence = run.ledger.fence
        raise Fenced(fence.name, fence.epoch, fence.epoch + 1)
    written = [
        PlanPart(part.partition, *offsets)
        for part, report in zip(plan.parts, reports, strict=True)
        for offsets in report.written
    ]
    staged = [
        StagedPart(part.partition, each)
        for part, report in zip(plan.parts, reports, strict=True)
        for each in report.staged
    ]
    left_out = run.publish(plan, staged, written)
    rows = sum(report.rows for report in reports) - left_out
    if any(report.failed for report in reports):
        _after_failure(run, plan, reports, rows)
    else:
        run.store(None, run.state(WriterStatus.RUNNING, rows))


def _after_failure(
    run: WriterRun, plan: WritePlan, reports: Sequence[AttemptReport], rows: int
) -> None:
    """Wait or fail with the rest of the plan, or deliver the failed parts one at a time."""
    errors = {report.fault: report.error or "" for report in reports if report.failed}
    if Fault.OUTAGE in errors:
        run.wait(errors[Fault.OUTAGE], _rest(run, plan), rows)
    elif Fault.REFUSAL in errors:
        failure = WriterFailure(errors[Fault.REFUSAL])
        run.store(_rest(run, plan), run.failed_at(failure, rows))
    else:
        _find_refused(run, plan, reports, rows)


def _rest(run: WriterRun, plan: WritePlan) -> WritePlan | None:
    """Return a plan of what the plan has left; the same one if nothing was acknowledged."""
    parts = unacknowledged_parts(plan.parts, run.ledger.progress)
    if parts == plan.parts:
        return plan
    return run.new_plan(plan.kind, parts) if parts else None


def _find_refused(
    run: WriterRun, plan: WritePlan, reports: Sequence[AttemptReport], rows: int
) -> None:
    """Replace a failed plan by one that delivers the failed parts one record at a time.

    The new plan starts at once if refused records are parked, else when an operator retries the
    writer. Offsets that were not tried are left to later plans.
    """
    failed = [
        PlanPart(part.partition, part.start, report.failed_below or part.end)
        for part, report in zip(plan.parts, reports, strict=True)
        if report.failed
    ]
    single = run.new_plan(PlanKind.SINGLE, unacknowledged_parts(failed, run.ledger.progress))
    if run.definition.settings.on_error is OnError.PARK:
        run.store(single, run.state(WriterStatus.RESUMING, rows))
        return
    failure = failure_of(zip(plan.parts, reports, strict=True))
    run.store(single, run.failed_at(failure, rows))
