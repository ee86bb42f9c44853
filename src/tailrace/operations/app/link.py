"""The link between a supervisor and one of its processes: a pair of connected sockets.

The process reports lines of JSON: that it is ready, that its error will not go away, and whenever
the supervisor asks, its activity or its metrics. The end of the supervisor, for whatever reason,
ends the link, and the process drains. A process inherits its end of the link as an open descriptor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

import msgspec

from tailrace.operations.app.activity import Activity, SubscriptionActivity
from tailrace.reporting.histogram import HistogramValue
from tailrace.reporting.metric import MetricScope
from tailrace.reporting.sample import Sample
from tailrace.telemetry import METRICS

_CHUNK_BYTES: Final = 1 << 16


class ReportKind(Enum):
    """What a process reports."""

    READY = "ready"
    REFUSED = "refused"
    ACTIVE = "active"
    MEASURED = "measured"


class Question(Enum):
    """What a supervisor asks for: one byte each."""

    ACTIVITY = b"?"
    METRICS = b"m"
    HUB_METRICS = b"h"
    """The metrics, those that are read of the hub included."""


class SentSample(msgspec.Struct, frozen=True, array_like=True):
    """The value of a metric, as a process sends it: a number, or the counts and sum of a
    histogram."""

    metric: str
    labels: tuple[str, ...]
    value: float | HistogramValue

    @classmethod
    def of(cls, sample: Sample) -> SentSample:
        """Return a sample to send."""
        return cls(sample.metric.name, sample.labels, sample.value)

    def sample(self, process: str) -> Sample:
        """Return the sample of this process. That of the hub is of no process."""
        metric = METRICS[self.metric]
        of_process = metric.scope is MetricScope.PROCESS
        return Sample(metric, self.labels, self.value, process if of_process else "")


class MeasuredProcess(Protocol):
    """What a process that runs an app says of its metrics."""

    def samples(self) -> list[Sample]:
        """Return the samples of now, those that are read of the hub included."""

    def own_samples(self) -> list[Sample]:
        """Return the samples of now, without those that are read of the hub."""

    def unready(self) -> str | None:
        """Return why the process does not work; None if it works."""


class ProcessReport(msgspec.Struct, frozen=True):
    """One report of a process. Only an active one has an activity, and only a measured one has
    samples, and `unready`: why the process does not work, if it does not."""

    kind: ReportKind
    activity: dict[str, SubscriptionActivity] = {}
    samples: list[SentSample] = []
    unready: str | None = None


class SupervisedLink:
    """The end of a process. `lost` is called, in a thread, when the supervisor has ended."""

    def __init__(self, descriptor: int, lost: Callable[[], None]) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # A program that a handler starts has nothing to do with the supervisor.
        os.set_inheritable(descriptor, False)
        self._lost = lost
        self.activity: Callable[[], Activity] = dict
        """Returns the activity of the process. Called in a thread."""
        self.metrics: MeasuredProcess | None = None
        """The metrics of the process; None while it starts. Asked in a thread."""
        threading.Thread(target=self._follow, name="tailrace supervisor link", daemon=True).start()

    def say_ready(self) -> None:
        """Report that the workers of all subscriptions were started."""
        self._send(ProcessReport(ReportKind.READY))

    def say_refused(self) -> None:
        """Report that the process ends with an error that it would have again."""
        self._send(ProcessReport(ReportKind.REFUSED))

    def _send(self, report: ProcessReport) -> None:
        with contextlib.suppress(OSError):  # The supervisor has ended, which `_follow` finds out.
            self._socket.sendall(msgspec.json.encode(report) + b"\n")

    def _follow(self) -> None:
        while asked := self._asked():
            if Question.ACTIVITY.value in asked:
                self._send(ProcessReport(ReportKind.ACTIVE, dict(self.activity())))
            if Question.METRICS.value in asked or Question.HUB_METRICS.value in asked:
                self._send(self._measured(hub=Question.HUB_METRICS.value in asked))
        self._lost()

    def _asked(self) -> bytes:
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return b""

    def _measured(self, *, hub: bool) -> ProcessReport:
        metrics = self.metrics
        if metrics is None:
            return ProcessReport(ReportKind.MEASURED, unready="starting")
        samples = metrics.samples() if hub else metrics.own_samples()
        sent = [SentSample.of(each) for each in samples]
        return ProcessReport(ReportKind.MEASURED, samples=sent, unready=metrics.unready())


class SupervisorLink:
    """The end of a supervisor. It never blocks."""

    def __init__(self) -> None:
        self._socket, self._other = socket.socketpair()
        self._socket.setblocking(False)
        self._unread = b""

    @property
    def inherited(self) -> int:
        """The descriptor that the process inherits."""
        return self._other.fileno()

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a report arrives."""
        return self._socket.fileno()

    def process_started(self) -> None:
        """Close the end of the process, which has its own copy of it now."""
        self._other.close()

    def ask(self, question: Question) -> None:
        """Ask the process."""
        with contextlib.suppress(OSError):  # It has ended, or has not yet answered many times.
            self._socket.send(question.value)

    def reports(self) -> list[ProcessReport] | None:
        """Return the reports that have arrived; None once the link has ended."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [msgspec.json.decode(line, type=ProcessReport) for line in lines]

    def close(self) -> None:
        """End the link. The process drains if it still runs."""
        self._socket.close()
        self._other.close()
