"""The names of a writer's jobs on the web page of Spark: the writer, and the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tailrace.pipeline.writing.plan import PlanPart

if TYPE_CHECKING:
    from pyspark import SparkContext

_DESCRIPTION: Final = "spark.job.description"
_NAMED_MAX: Final = 3
"""The number of parts that a name shows."""


@contextmanager
def named_jobs(context: SparkContext, name: str) -> Iterator[None]:
    """Give the jobs that this thread runs in the block a name."""
    unchecked: Any = context  # None, which removes a property, is not in its annotations.
    before = unchecked.getLocalProperty(_DESCRIPTION)
    unchecked.setLocalProperty(_DESCRIPTION, name)
    try:
        yield
    finally:
        unchecked.setLocalProperty(_DESCRIPTION, before)


def job_name(writer: str, parts: Sequence[PlanPart]) -> str:
    """Return the name of a job that delivers parts: ``lake/crm: lake.commits/0.0@0 to 999``."""
    named = [f"{part.partition}@{part.start} to {part.end - 1}" for part in parts[:_NAMED_MAX]]
    more = len(parts) - len(named)
    return f"{writer}: {', '.join(named)}" + (f" and {more} more" if more else "")
