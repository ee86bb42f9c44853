"""Why a writer stopped, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.message import Partition
from tailrace.pipeline.deliver import Report
from tailrace.pipeline.plan import Part

_NAMED_MAX: Final = 20
"""So many refused records are named."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a writer cannot go on: where, if a record is to blame, and what was said."""

    error: str
    partition: Partition | None = None
    offset: int | None = None

    @property
    def position(self) -> str | None:
        """Where, in writing."""
        return None if self.partition is None else f"{self.partition}@{self.offset}"


def trouble_of(reported: Iterable[tuple[Part, Report]]) -> Trouble:
    """What to tell of attempts of which some failed: the first refused record, and the others."""
    found = [(part, report) for part, report in reported if report.failed]
    refused = [(part, failure) for part, report in found for failure in report.failures]
    if not refused:
        return Trouble(found[0][1].error or "")
    part, first = refused[0]
    error = first.error
    if len(refused) > 1:
        others = ", ".join(f"{part.partition}@{f.offset}" for part, f in refused[1:_NAMED_MAX])
        error = f"{error} · {len(refused)} records were refused, also {others}"
    return Trouble(error, part.where, first.offset)
