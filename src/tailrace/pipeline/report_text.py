"""Progress and reports of a run as text for people."""

from __future__ import annotations

from collections.abc import Callable

import click

from tailrace.amount import format_amount
from tailrace.pipeline.report import (
    RunOutcome,
    RunProgress,
    RunReport,
    WriterReport,
    format_wait,
)
from tailrace.terminal.tables import table


def progress_text(progress: RunProgress) -> str:
    """Return a run in progress: a line, and a table of its writers."""
    if progress.starting is not None:
        return f"{progress.pipeline}: starting {progress.starting}, {progress.seconds:.0f} s"
    return f"{_reader_line(progress)}\n{_writers_table(progress.writers, _problem)}"


def progress_line(progress: RunProgress) -> str:
    """Return a run in progress in one line: its reader, and the writers that wait for a sink."""
    waiting = (
        f"{writer.name} waits for {writer.waits_for} {_problem(writer)}"
        for writer in progress.writers
        if writer.next_try is not None
    )
    return "; ".join((_reader_line(progress), *waiting))


def _reader_line(progress: RunProgress) -> str:
    line = f"{progress.pipeline}: {_read(progress)}"
    if progress.blocked_by is not None:
        line += f"; the reader waits for {progress.blocked_by}"
    if progress.waiting is not None:
        line += f"; the reader waits: {progress.waiting}"
    return line


def report_text(report: RunReport) -> str:
    """Return the closing text of a run."""
    good = report.outcome in (RunOutcome.DONE, RunOutcome.STOPPED)
    outcome = click.style(report.outcome.name, fg="green" if good else "red", bold=True)
    lines = [
        f"{report.pipeline} {outcome} after {report.seconds:,.1f} s, "
        f"{_read(report)}: {_sentence(report)}",
        *([] if report.waiting is None else [f"reader: {report.waiting}"]),
        _writers_table(report.writers, _parked),  # failures have their own lines
        *report.losses,
        *report.failures,
        *report.outages,
    ]
    if report.unreadable:
        lines.append(f"{_unreadable(report.unreadable)}, see: {_dead_letters(report)}")
    pending = report.dead_letters - report.unreadable
    if pending > 0:
        what = f"{'other ' if report.unreadable else ''}pending dead letter"
        lines.append(f"{format_amount(pending, what)}, see: {_dead_letters(report)}")
    if report.spark_log is not None:
        lines.append(f"Spark's log: {report.spark_log}")
    return "\n".join(lines)


def _sentence(report: RunReport) -> str:
    if report.outcome is not RunOutcome.DONE:
        return report.outcome.sentence
    text = report.outcome.sentence
    if report.losses:
        text = "all records of the new commit log were delivered"
    parked = sum(writer.parked for writer in report.writers)
    return f"{text} except {format_amount(parked, 'parked record')}" if parked else text


def _dead_letters(report: RunReport) -> str:
    return f"tailrace dlq {report.pipeline} list --by error"


def _read(run: RunProgress | RunReport) -> str:
    if run.follows is not None:
        return f"source {run.follows}"
    more = f", {_unreadable(run.unreadable)}" if run.unreadable else ""
    return f"{format_amount(run.rows_read, 'row')} read{more}"


def _unreadable(count: int) -> str:
    return format_amount(count, "unreadable line")


def _writers_table(
    writers: tuple[WriterReport, ...], describe: Callable[[WriterReport], str]
) -> str:
    return table(
        ("writer", "state", "rows", "rows/s", "lag", ""),
        (
            (w.name, w.state.value, w.rows, round(w.rows_per_second), w.lag, describe(w))
            for w in writers
        ),
    )


def _problem(writer: WriterReport) -> str:
    if writer.error is None:
        return _parked(writer)
    if writer.next_try is not None:
        return format_wait(writer.since, writer.next_try, writer.error)
    return f"{f'{writer.position}: ' if writer.position else ''}{writer.error}"


def _parked(writer: WriterReport) -> str:
    return f"{writer.parked:,} parked" if writer.parked else ""
