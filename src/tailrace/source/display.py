"""The progress of a source on standard error."""

from __future__ import annotations

from functools import partial

from tailrace.amount import format_amount
from tailrace.source.reader import Closeable
from tailrace.source.report import NamespaceProgress, SourceProgress
from tailrace.terminal.progress import ProgressDisplay

BAR_CELLS = 20


class SourceDisplay(Closeable):
    """Shows progress: redrawn on a terminal with a bar for each namespace that is copied, lines
    elsewhere. Leaving the `with` block clears it."""

    def __init__(self, display: ProgressDisplay | None = None) -> None:
        self._display = display or ProgressDisplay()

    def close(self) -> None:
        """Clear the table."""
        self._display.clear()

    def __call__(self, progress: SourceProgress) -> None:
        """Show the progress, if the next drawing or line is due."""
        self._display.show(
            partial(source_progress_text, progress), partial(source_progress_line, progress)
        )


def source_progress_line(progress: SourceProgress) -> str:
    """Return the progress of a task as one line."""
    state = "caught up" if progress.caught_up else f"{progress.rows_per_second:,.0f} rows/s"
    part = f"{format_amount(progress.units, 'unit')} of {format_amount(progress.tasks, 'task')}"
    leads = ", leads" if progress.leads else ""
    bad = f", {format_amount(progress.bad, 'dead letter')}" if progress.bad else ""
    rows = format_amount(progress.rows, "row")
    return f"{progress.source}: task {progress.task}{leads}, {part}: {rows}{bad}, {state}"


def source_progress_text(progress: SourceProgress) -> str:
    """Return the progress of a task, and of the source by namespace."""
    lines = [source_progress_line(progress)]
    width = max((len(each.namespace) for each in progress.namespaces), default=0)
    lines += [f"  {each.namespace:<{width}}  {_namespace(each)}" for each in progress.namespaces]
    return "\n".join(lines)


def _namespace(progress: NamespaceProgress) -> str:
    rows = format_amount(progress.rows, "row")
    if not progress.copying:
        return f"{rows}, following"
    if not progress.rows_expected:
        return f"{rows}, copying"
    part = min(1.0, progress.rows / progress.rows_expected)
    bar = ("#" * round(part * BAR_CELLS)).ljust(BAR_CELLS, ".")
    return f"[{bar}] {part:4.0%}  {rows} of about {progress.rows_expected:,}"
