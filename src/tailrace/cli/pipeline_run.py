"""`tailrace pipeline run`: a pipeline in this process, with its progress, until it is stopped."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from tailrace.amount import format_amount
from tailrace.cli.command import verb
from tailrace.cli.session import ExitStatus, Session
from tailrace.cli.signals import Signals
from tailrace.cli.tables import table

if TYPE_CHECKING:
    from tailrace.operations.pipeline_run import RunLook, RunReport, Watch, WriterReport
    from tailrace.pipeline.run import Ending, PipelineRun

LOOK_S: Final = 0.1
"""How soon a signal or the end is noticed."""

REDRAW_S: Final = 0.5
LINE_S: Final = 5.0
"""How often progress is written: on a terminal, and elsewhere."""


@verb(
    "run",
    examples="""
    tailrace pipeline run lake.toml
    tailrace pipeline run lake.toml --once
    tailrace pipeline run lake:pipeline --master spark://10.0.0.7:7077
    """,
)
@click.argument("file", metavar="FILE|MODULE:ATTRIBUTE")
@click.option("--once", is_flag=True, help="End when all is delivered that was there at the start.")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
@click.option("--verbose", is_flag=True, help="Show what Spark says, which else goes to a file.")
@click.pass_obj
def run(session: Session, file: str, once: bool, master: str | None, verbose: bool) -> None:
    """Run a pipeline: read, and write to all its writers.

    Progress goes to standard error. Ctrl-C or SIGTERM ends it cleanly: writers finish what is under
    way, and past the pipeline's stop_timeout the status is 3, and that comes again at the next
    start. The second signal ends it at once.

    The status is 1 when the reader or a writer failed, 2 when something is wrong before it starts.
    """
    signals = Signals(_interrupt)
    try:
        with signals:
            _run(session, signals, file, once, master, verbose)
    except KeyboardInterrupt:
        click.echo("stopped before it had begun", err=True)


def _run(
    session: Session, signals: Signals, file: str, once: bool, master: str | None, verbose: bool
) -> None:
    """Run it and show how it ended. Until it begins, a signal raises `KeyboardInterrupt`."""
    from tailrace.operations.pipeline_run import Watch, load_definition, states_so_far
    from tailrace.pipeline.checking import check
    from tailrace.pipeline.pipeline import MASTER
    from tailrace.pipeline.run import Ending
    from tailrace.source.reader import Until

    pipeline = load_definition(file)
    if not session.has_hub:
        # No hub is made for a pipeline that cannot start.
        check(pipeline.definition, session.settings.hub.path)
    until = Until.NOW if once else Until.STOPPED
    with session.create_hub() as hub:
        prepared = pipeline.prepare(hub, until=until, master=master or MASTER, verbose=verbose)
        watch = Watch(hub, prepared, states_so_far(hub, prepared.definition))
        signals.noted = _count_only
        running = _Running(prepared, watch, signals)
        try:
            ending = running.wait()
            session.show(watch.end(running.seconds, ending), _report_text)
            if ending is Ending.UNFINISHED:
                _leave(ExitStatus.STOPPED)
        finally:
            _stop_spark()
    if ending is Ending.FAILED:
        raise click.exceptions.Exit(ExitStatus.ERROR)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _count_only() -> None:
    """The running pipeline sees to signals by itself."""


class _Running:
    """A run in a thread of its own, while this one shows progress and sees to signals."""

    def __init__(self, run: PipelineRun, watch: Watch, signals: Signals) -> None:
        self._run = run
        self._watch = watch
        self._signals = signals
        self._outcome: Ending | BaseException | None = None
        self._done = threading.Event()
        self._started = time.monotonic()
        self._display = _Display()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._started

    def wait(self) -> Ending:
        """Until it has ended; raises what kept it from starting."""
        threading.Thread(target=self._work, name="pipeline", daemon=True).start()
        stopping = False
        try:
            while not self._done.wait(LOOK_S):
                if self._signals.count and not stopping:
                    stopping = True
                    self._run.stop()
                    seconds = self._run.definition.stop_timeout.total_seconds()
                    self._display.say(f"stopping, within {seconds:g} s; again to stop at once")
                if self._signals.count > 1:
                    self._display.say("stopped at once: what was under way comes again")
                    _leave(ExitStatus.STOPPED)
                if self._display.due(self.seconds):
                    self._display.show(self._watch.look(self.seconds))
        finally:
            self._display.clear()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def _work(self) -> None:
        try:
            self._outcome = self._run.run()
        except BaseException as error:
            self._outcome = error
        finally:
            self._done.set()


class _Display:
    """Progress on stderr: lines that are drawn again on a terminal, else a line of JSON now and
    then."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._interval_s = REDRAW_S if self._terminal else LINE_S
        self._due = self._interval_s
        self._drawn = 0

    def due(self, seconds: float) -> bool:
        """Whether it is time to show it again."""
        return seconds >= self._due

    def show(self, look: RunLook) -> None:
        """Show it."""
        self._due = look.seconds + self._interval_s
        if not self._terminal:
            import msgspec

            click.echo(msgspec.json.encode(look), err=True)
            return
        self.clear()
        # Cut, because a line that is wrapped would be two to take away.
        width = shutil.get_terminal_size().columns - 1
        lines = [line[:width] for line in click.unstyle(_progress_text(look)).splitlines()]
        self._drawn = len(lines)
        click.echo("\n".join(lines), err=True)

    def clear(self) -> None:
        """Take away what was drawn."""
        if self._drawn:
            click.echo(f"\x1b[{self._drawn}A\x1b[J", err=True, nl=False)
            self._drawn = 0

    def say(self, sentence: str) -> None:
        """A line that stays."""
        self.clear()
        click.echo(sentence, err=True)


def _progress_text(look: RunLook) -> str:
    if look.starting is not None:
        return f"{look.pipeline}: starting {look.starting}, {look.seconds:.0f} s"
    read = f"{look.pipeline}: {_read_text(look)}"
    if look.held_by is not None:
        read += f"; the reader waits for {look.held_by}"
    return f"{read}\n{_writers_table(look.writers, _trouble)}"


def _read_text(look: RunLook) -> str:
    unreadable = f", {look.unreadable:,} unreadable" if look.unreadable else ""
    return f"{format_amount(look.rows_read, 'row')} read{unreadable}"


def _writers_table(
    writers: tuple[WriterReport, ...], describe: Callable[[WriterReport], str]
) -> str:
    return table(
        ("writer", "state", "rows", "rows/s", "behind", ""),
        (
            (w.name, w.state, w.rows, round(w.rows_per_second), w.behind, describe(w))
            for w in writers
        ),
    )


def _trouble(writer: WriterReport) -> str:
    if writer.error is None:
        return _parked(writer)
    return f"{f'{writer.position}: ' if writer.position else ''}{writer.error}"


def _parked(writer: WriterReport) -> str:
    return f"{writer.parked:,} parked" if writer.parked else ""


def _report_text(report: RunReport) -> str:
    from tailrace.pipeline.run import Ending

    ending, last = Ending[report.ending.upper()], report.last
    colour = "green" if ending in (Ending.DONE, Ending.STOPPED) else "red"
    lines = [
        f"{last.pipeline} {click.style(ending.name, fg=colour, bold=True)} "
        f"after {last.seconds:,.1f} s, {_read_text(last)}: {ending.value}",
        *([] if report.empty is None else [report.empty]),
        _writers_table(last.writers, _parked),  # errors have lines of their own
        *report.troubles,
    ]
    if report.dead_letters:
        letters = format_amount(report.dead_letters, "dead letter")
        wait = "waits" if report.dead_letters == 1 else "wait"
        lines.append(f"{letters} {wait}: tailrace dlq {last.pipeline} list --by error")
    if report.spark_log is not None:
        lines.append(f"Spark's log: {report.spark_log}")
    return "\n".join(lines)


def _stop_spark() -> None:
    """End the Spark of this process, if there is one."""
    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        active = SparkContext._active_spark_context
        if active is not None:
            active.stop()


def _leave(status: ExitStatus) -> None:
    """End now, whatever threads are still at."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
