"""A supervisor: it runs an app in several processes, and starts again those that end.

Each process is a new interpreter, so that nothing is shared but the hub, and leads a process group
of its own, so that Ctrl-C reaches only the supervisor, which then lets all of them drain. If the
supervisor is killed, its processes drain because their links end.
"""

from __future__ import annotations

import logging
import math
import os
import random
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Final

from tailrace.operations.app.activity import Activity, total_of
from tailrace.operations.app.link import Question, ReportKind, SupervisorLink
from tailrace.operations.app.process_metrics import ProcessMetrics
from tailrace.operations.app.supervision import (
    DRAINED,
    AnnounceRestart,
    Began,
    KillProcess,
    ProcessExited,
    ProcessReady,
    ProcessRefused,
    StartProcess,
    StopAsked,
    Supervision,
    SupervisionAction,
    SupervisionEvent,
    TerminateProcess,
    TimePassed,
)
from tailrace.terminal.signals import Signals

_log: Final = logging.getLogger("tailrace.app")

NOT_STARTED: Final = 127
"""The exit status of a process that the operating system could not start."""

OBSERVE_S: Final = 2.0
"""Seconds between two questions for the activity of the processes."""


class _Child:
    """A process that was started, and the link to it. `command` gets the link's descriptor."""

    def __init__(self, number: int, command: Callable[[int], Sequence[str]]) -> None:
        self.number = number
        self.link = SupervisorLink()
        self.activity: Activity = {}
        try:
            self.process = subprocess.Popen(
                command(self.link.inherited),
                stdin=subprocess.DEVNULL,
                pass_fds=[self.link.inherited],
                process_group=0,
            )
        except BaseException:
            self.link.close()
            raise
        self.link.process_started()

    def __str__(self) -> str:
        return f"process {self.number + 1} (pid {self.process.pid})"

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs.

        If it has not drained, its handlers ended with it: the programs that they have started are
        killed. That is before the process is reaped: then another group could have its number.
        """
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        if (ended.si_code, ended.si_status) != (os.CLD_EXITED, DRAINED):
            self.kill()
        return self.process.poll()

    def terminate(self) -> None:
        """Let the process drain. `Popen.terminate` would reap one that has just ended, and `poll`
        would not find it any more."""
        if self.process.returncode is None:
            os.kill(self.process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process, and the programs that its handlers have started in its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class _Wakeup:
    """Ends the wait of a selector when a signal arrives, also that of a process that ended."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        selector.register(self._reader, selectors.EVENT_READ)
        # Without a handler, the signal would not be noticed at all.
        self._handler = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        # Not by the handlers: one that is called just before a wait begins is too early.
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wake(self) -> None:
        """End the present or next wait. Any thread may call it, before `close`."""
        with suppress(BlockingIOError):  # It is awake.
            os.write(self._writer, b"\0")

    def clear(self) -> None:
        """Let the next wait last until the next signal."""
        with suppress(BlockingIOError):
            os.read(self._reader, 1 << 16)

    def close(self) -> None:
        """Handle signals as before."""
        signal.set_wakeup_fd(self._before)
        signal.signal(signal.SIGCHLD, self._handler)
        os.close(self._reader)
        os.close(self._writer)


class Supervisor:
    """Runs a command in several processes until a signal. For the main thread.

    `command` returns the command of a process, given the descriptor of its link. `observe` gets the
    activity of all processes together, every two seconds, in the thread of `run`. `metrics` asks
    the processes for their metrics.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        processes: int,
        *,
        drain_s: float,
        observe: Callable[[Activity], None] | None = None,
        metrics: ProcessMetrics | None = None,
    ) -> None:
        self._command = command
        self._metrics = metrics or ProcessMetrics(processes)
        self._machine = Supervision(processes, drain_s, random.random)
        self._observe = observe
        self._observe_at = math.inf if observe is None else time.monotonic()
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run until all processes have ended, and return the exit status.

        The first Ctrl-C or SIGTERM lets them drain, the second kills them.
        """
        with (
            self._selector,
            closing(_Wakeup(self._selector)) as wakeup,
            Signals() as signals,
        ):
            self._metrics.begin(wakeup.wake)
            try:
                return self._run(wakeup, signals)
            finally:
                self._metrics.end()
                for child in list(self._children.values()):
                    child.kill()
                    child.process.wait()

    def _run(self, wakeup: _Wakeup, signals: Signals) -> int:
        stops = 0
        self._handle(Began())
        while (status := self._machine.exit_status) is None:
            self._selector.select(self._patience_s())
            wakeup.clear()
            for child in list(self._children.values()):
                ended = child.poll()
                self._read_reports(child)
                if ended is not None:
                    self._exited(child, ended)
            while stops < signals.count:
                stops += 1
                if stops == 1:
                    _log.info("stopping: waiting for the calls in flight in all processes")
                self._handle(StopAsked())
            self._handle(TimePassed())
            self._ask()
        return status

    def _patience_s(self) -> float | None:
        due = min(self._machine.deadline() or math.inf, self._observe_at)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def _handle(self, event: SupervisionEvent) -> None:
        for action in self._machine.handle(event, time.monotonic()):
            self._act(action)

    def _act(self, action: SupervisionAction) -> None:
        child = self._children.get(action.number)
        match action:
            case StartProcess(number):
                self._start(number)
            case AnnounceRestart(number, status, delay_s):
                named = child or f"process {number + 1}"
                text = "%s %s; it is started again in %.1f s"
                _log.warning(text, named, _end_text(status), delay_s)
            case TerminateProcess() if child is not None:
                child.terminate()
            case KillProcess() if child is not None:
                _log.warning("%s is killed; its messages in flight will be redelivered", child)
                child.kill()

    def _start(self, number: int) -> None:
        try:
            child = _Child(number, self._command)
        except OSError as error:
            _log.error("process %d could not be started: %s", number + 1, error)
            self._handle(ProcessExited(number, NOT_STARTED))
            return
        self._children[number] = child
        self._metrics.started(number)
        self._selector.register(child.link, selectors.EVENT_READ)

    def _read_reports(self, child: _Child) -> None:
        reports = child.link.reports()
        if reports is None:  # It has ended, or closed the link: then only its end is awaited.
            with suppress(KeyError):
                self._selector.unregister(child.link)
            return
        for report in reports:
            match report.kind:
                case ReportKind.READY:
                    _log.info("%s is ready", child)
                    self._handle(ProcessReady(child.number))
                case ReportKind.REFUSED:
                    self._handle(ProcessRefused(child.number))
                case ReportKind.ACTIVE:
                    child.activity = report.activity
                case ReportKind.MEASURED:
                    self._metrics.answered(child.number, report)

    def _exited(self, child: _Child, status: int) -> None:
        with suppress(KeyError):
            self._selector.unregister(child.link)
        child.link.close()
        self._metrics.ended(child.number)
        failure = self._machine.failure
        self._handle(ProcessExited(child.number, status))
        if self._machine.failure != failure:
            _log.error("%s %s; the app is stopped", child, _end_text(status))
        if self._children.get(child.number) is child:
            del self._children[child.number]

    def _ask(self) -> None:
        """Ask for the metrics of the processes, if somebody wants them, and for their activity, and
        pass on their last answers, if it is time."""
        for number, question in self._metrics.questions(self._children).items():
            self._children[number].link.ask(question)
        if self._observe is None or time.monotonic() < self._observe_at:
            return
        self._observe_at = time.monotonic() + OBSERVE_S
        self._observe(total_of(child.activity for child in self._children.values()))
        for child in self._children.values():
            child.link.ask(Question.ACTIVITY)


def _end_text(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # A real-time signal has no name.
        return f"was killed by signal {-status}"
