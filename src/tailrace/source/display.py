"""The progress of a source on standard error, and the closing text of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.amount import format_amount
from tailrace.source.reader import Closeable
from tailrace.source.report import (
    NamespaceProgress,
    NamespaceState,
    SourceOutcome,
    SourceProgress,
    SourceReport,
)
from tailrace.terminal.progress import ProgressDisplay

BAR_CELLS: Final = 20

NAMESPACES_SHOWN_MAX: Final = 20
"""Number of namespaces that are shown, those that are copied first."""


class SourceDisplay(Closeable):
    """Shows progress: `text` that is redrawn on a terminal, with a bar for each namespace that is
    copied, lines of `line` elsewhere.

    `on_stop` is the sentence that it writes once, when the run is being stopped. Leaving the `with`
    block clears the table.
    """

    def __init__(
        self,
        *,
        line: Callable[[SourceProgress], str] | None = None,
        text: Callable[[SourceProgress], str] | None = None,
        on_stop: str = "",
        display: ProgressDisplay | None = None,
    ) -> None:
        self._display = display or ProgressDisplay()
        self._line = line or source_progress_line
        self._text = text or source_progress_text
        self._on_stop = on_stop
        self._waiting: str | None = None

    def close(self) -> None:
        """Clear the table."""
        self._display.clear()

    def __call__(self, progress: SourceProgress) -> None:
        """Show the progress, if the next drawing or line is due."""
        if progress.waiting is not None and progress.waiting != self._waiting:
            self._display.say(f"{progress.source}: the reader waits: {progress.waiting}")
        self._waiting = progress.waiting
        if progress.stopping and self._on_stop:
            self._display.say(self._on_stop)
            self._on_stop = ""
        self._display.show(partial(self._text, progress), partial(self._line, progress))


def source_progress_line(progress: SourceProgress) -> str:
    """Return the progress of a task as one line."""
    state = "caught up" if progress.caught_up else f"{progress.rows_per_second:,.0f} rows/s"
    if progress.waiting is not None:
        state = f"the reader waits: {progress.waiting}"
    if progress.retrying is not None:
        state = f"retries: {progress.retrying}"
    part = f"{format_amount(progress.units, 'unit')} of {format_amount(progress.tasks, 'task')}"
    leads = ", leads" if progress.leads else ""
    read = _read(progress.rows, progress.bad)
    return f"{progress.source}: task {progress.task}{leads}, {part}: {read}, {state}"


def source_progress_text(progress: SourceProgress) -> str:
    """Return the progress of a task, and of the source by namespace."""
    return "\n".join([source_progress_line(progress), *namespace_lines(progress.namespaces)])


def namespace_lines(namespaces: tuple[NamespaceProgress, ...]) -> list[str]:
    """Return a line for each namespace, those that are copied first, at most as many as fit."""
    ordered = sorted(namespaces, key=lambda each: (not each.copying, each.namespace))
    shown = ordered[:NAMESPACES_SHOWN_MAX]
    width = max((len(each.namespace) for each in shown), default=0)
    lines = [f"  {each.namespace:<{width}}  {namespace_text(each)}" for each in shown]
    if more := len(ordered) - len(shown):
        lines.append(f"  and {format_amount(more, 'more namespace')}")
    return lines


def namespace_text(progress: NamespaceProgress) -> str:
    """Return how far a namespace is: a bar with rows and rate, or rows, rate and lag."""
    rows = format_amount(progress.rows, "row")
    rate = ""
    if progress.rows_per_second is not None:
        rate = f", {progress.rows_per_second:,.0f} rows/s"
    if progress.copying:
        if not progress.rows_expected:
            return f"{rows}{rate}, copying"
        part = min(1.0, progress.rows / progress.rows_expected)
        bar = ("#" * round(part * BAR_CELLS)).ljust(BAR_CELLS, ".")
        return f"[{bar}] {part:4.0%}  {rows} of about {progress.rows_expected:,}{rate}"
    if progress.state is NamespaceState.WAITING:
        return f"{rows}, waits for other splits to finish"
    copied = "" if progress.rows_expected is None else " copied"
    if progress.state is NamespaceState.FINISHED:
        return f"{rows}{copied}, finished"
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    return f"{rows}{copied}, following{rate}{lag}"


def source_report_text(report: SourceReport) -> str:
    """Return the closing text of a run."""
    read = _read(report.rows, report.bad)
    text = f"{report.source}: task {report.task} has read {read} in {report.seconds:,.1f} s: "
    if report.outcome is SourceOutcome.DONE:
        text += "everything was read"
    else:
        text += "stopped; the other tasks, or the next run, continue"
    if report.retrying is not None:
        text += f"\nit was about to try again after an error: {report.retrying}"
    if report.bad:
        letters = format_amount(report.bad, "dead letter")
        text += f"\n{letters}, see: tailrace dlq {report.source} list --by error"
    return text


def _read(rows: int, bad: int) -> str:
    letters = f", {format_amount(bad, 'dead letter')}" if bad else ""
    return f"{format_amount(rows, 'row')}{letters}"
