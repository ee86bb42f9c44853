"""Delivering one record at a time, after a failure: thousands a second, in the driver.

Each record is acknowledged by itself. The ledger is written at the progress interval, at trouble
and at the end, so a crash makes only the last moment's records come again, and none for a sink that
keeps a record of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.errors import Fenced
from tailrace.pipeline.deliver import Covered, cover_rest, is_of_the_sink, told
from tailrace.pipeline.engine import Assignment
from tailrace.pipeline.offsets import Offsets, united
from tailrace.pipeline.plan import Part, Plan
from tailrace.pipeline.rows import RowError
from tailrace.pipeline.writer import WriterSession

if TYPE_CHECKING:
    from tailrace.pipeline.writing import WriterRun


def deliver_singly(run: WriterRun, plan: Plan) -> None:
    """Deliver what is left of a plan, until done, stopped or in trouble that is not parked."""
    for part in plan.parts:
        while not run.failed and not run.stopping.is_set():
            if _some_of(run, plan, part):
                break
    if not run.failed and not run.stopping.is_set():
        run.finished_single()


def _some_of(run: WriterRun, plan: Plan, part: Part) -> bool:
    """Deliver until the next time to settle; True when the part is done."""
    work = run.work(plan)
    session = run.engine.open(work, part)
    tally = _Tally()
    trouble: Exception | None = None
    try:
        try:
            _, done = run.assigned(part)
            left = Assignment(part, united([*done, *session.applied()]))
            _deliver(run, run.engine.singly(work, left), session, tally)
            if tally.whole:
                end = max((each.end for each in tally.delivered), default=part.start)
                cover_rest(session, Offsets(end, part.end))
        except RowError as failed:
            tally.refused = failed.offset, failed.reason
        except Exception as failed:
            trouble = failed
        staged = session.finish()
    except Exception as failed:
        raise trouble or failed from None
    finally:
        session.close()
    written = [part.offsets] if tally.whole else united(tally.delivered)
    run.settle(plan, staged, [Part(part.partition, *each) for each in written], tally.rows)
    if trouble is not None:
        raise trouble
    if tally.refused is not None:
        run.trouble_with(plan, part, *tally.refused)
    return tally.whole


@dataclass(slots=True)
class _Tally:
    """What one session has done: `refused` is the record it ended with, `whole` that none is
    left."""

    delivered: list[Offsets] = field(default_factory=list)
    rows: int = 0
    refused: tuple[int, str] | None = None
    whole: bool = False


def _deliver(
    run: WriterRun, records: Iterable[Covered], session: WriterSession, tally: _Tally
) -> None:
    due = run.clock.monotonic() + run.progress_interval_s
    for record in records:
        error = _write(session, record)
        if error is not None:
            tally.refused = record.offsets.end - 1, error
            return
        tally.delivered.append(record.offsets)
        tally.rows += len(record.rows)
        if run.stopping.is_set() or run.clock.monotonic() >= due:
            return
    tally.whole = True


def _write(session: WriterSession, covered: Covered) -> str | None:
    """Give one record to a session; what it says against it, if it is to blame.

    Raises what is the sink's trouble, and `Fenced`.
    """
    try:
        failures = session.write(covered.rows, covered.offsets)
    except Exception as error:
        if isinstance(error, Fenced) or is_of_the_sink(error):
            raise
        return told(error)
    return failures[0].error if failures else None
