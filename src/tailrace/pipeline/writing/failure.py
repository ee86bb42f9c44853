"""Why a writer failed, for people."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.amount import format_amount
from tailrace.errors import HubReplaced
from tailrace.message import Partition
from tailrace.pipeline.writer import RewindRefused, StagedLost
from tailrace.pipeline.writer_status import WaitsFor
from tailrace.pipeline.writing.attempt import AttemptReport, describe_error
from tailrace.pipeline.writing.plan import PlanPart, WritePlan, sealed_starts
from tailrace.pipeline.writing.sink_outage import SinkOutage

_NAMED_MAX: Final = 20
"""The maximum number of refused records that an error names."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterFailure:
    """Why a writer failed: the error, and the refused record if one caused it."""

    error: str
    partition: Partition | None = None
    offset: int | None = None
    valid_rewinds: tuple[str, ...] = ()

    @property
    def position(self) -> str | None:
        """The position of the refused record; None if no record caused the failure."""
        return None if self.partition is None else f"{self.partition}@{self.offset}"


def failure_of_error(error: Exception, plan: WritePlan | None = None) -> WriterFailure:
    """Return the failure for an error that no record caused. `plan` is the open plan."""
    rewinds: tuple[str, ...] = ()
    if isinstance(error, RewindRefused) and error.partition is not None:
        rewinds = tuple(f"{error.partition}@{offset}" for offset in error.valid_offsets)
    if isinstance(error, StagedLost) and plan is not None:
        rewinds = tuple(f"{where}@{start}" for where, start in sealed_starts(plan).items())[:1]
    return WriterFailure(describe_error(error), valid_rewinds=rewinds)


def log_failure(writer: str, error: Exception) -> None:
    """Log that a writer failed, with the traceback of an error that is not expected."""
    unexpected = None if isinstance(error, HubReplaced) else error
    reason = f": {error}" if unexpected is None else ""
    _log.warning("writer %s failed%s", writer, reason, exc_info=unexpected)


def failure_of_wait(outage: SinkOutage) -> WriterFailure:
    """Return the failure of a writer whose sink did not come back in time."""
    tried = format_amount(outage.tries, "attempt")
    waited = "the sink did not come back" if outage.waits_for is WaitsFor.SINK else "none came"
    return WriterFailure(f"{outage.reason} · {waited} in time, after {tried}")


def failure_of(reported: Iterable[tuple[PlanPart, AttemptReport]]) -> WriterFailure:
    """Return the failure for attempts of which some failed: the first refused record names it."""
    found = [(part, report) for part, report in reported if report.failed]
    refused = [(part, failure) for part, report in found for failure in report.failures]
    if not refused:
        return WriterFailure(found[0][1].error or "")
    part, first = refused[0]
    error = first.error
    if len(refused) > 1:
        others = ", ".join(f"{part.partition}@{f.offset}" for part, f in refused[1:_NAMED_MAX])
        error = f"{error} · {len(refused)} records were refused, also {others}"
    return WriterFailure(error, part.where, first.offset)
