"""The metrics of all processes of a supervisor, asked for by one server.

The threads of the server ask, and wait for a bounded time. The supervisor's thread passes the
question on to the processes, and brings their answers. What is the same from every process, the
metrics of the hub, only one of them is asked for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from tailrace import telemetry
from tailrace.operations.app.link import ProcessReport, Question
from tailrace.reporting.sample import Sample, summed

ANSWER_S: Final = 2.0
"""How long the answers of the processes are awaited."""


class ProcessMetrics:
    """The metrics and the health of so many processes, which are numbered from 0."""

    def __init__(self, processes: int, answer_s: float = ANSWER_S) -> None:
        self._processes = processes
        self._answer_s = answer_s
        self._changed = threading.Condition()
        self._wake: Callable[[], None] | None = None
        self._wanted = False
        """True from a question of the server until it is passed on."""
        self._round = 0
        """The number of questions that were passed on."""
        self._awaited: set[int] = set()
        """The processes that have not answered: they are not asked again before they have."""
        self._answers: dict[int, ProcessReport] = {}
        self._starts: Counter[int] = Counter()

    # For the server, in its threads.

    def samples(self) -> list[Sample]:
        """Return the samples of all processes that answer in time, and which ones do."""
        answers = self._ask()
        found: list[Sample] = []
        for number in range(self._processes):
            label = (_label(number),)
            found.append(Sample(telemetry.PROCESS_UP, label, int(number in answers)))
            found.append(Sample(telemetry.PROCESS_STARTS, label, self._starts[number]))
        for number, report in sorted(answers.items()):
            found += [each.sample(_label(number)) for each in report.samples]
        return summed(found)

    def unready(self) -> str | None:
        """Return why a process does not work; None if all work."""
        answers = self._ask()
        for number in range(self._processes):
            report = answers.get(number)
            if report is None:
                return f"process {number + 1} does not answer"
            if report.unready is not None:
                return f"process {number + 1}: {report.unready}"
        return None

    def _ask(self) -> dict[int, ProcessReport]:
        with self._changed:
            if self._wake is None:
                return {}
            due = self._round + 1
            if not self._wanted:
                self._wanted = True
                self._wake()
            self._changed.wait_for(
                lambda: self._wake is None or (self._round >= due and not self._awaited),
                self._answer_s,
            )
            return dict(self._answers)

    # For the supervisor, in its thread.

    def begin(self, wake: Callable[[], None]) -> None:
        """Answer from now on. `wake` is called, in any thread, when `questions` has some."""
        with self._changed:
            self._wake = wake

    def end(self) -> None:
        """Answer no more."""
        with self._changed:
            self._wake = None
            self._changed.notify_all()

    def started(self, number: int) -> None:
        """Record that a process was started."""
        with self._changed:
            self._starts[number] += 1

    def questions(self, running: Collection[int]) -> dict[int, Question]:
        """Return what to ask the processes that run; nothing if the server does not ask."""
        with self._changed:
            if not self._wanted:
                return {}
            self._wanted = False
            self._round += 1
            asked = sorted(set(running) - self._awaited)
            self._awaited.update(asked)
            self._answers = {}
            self._changed.notify_all()
            questions = dict.fromkeys(asked, Question.METRICS)
            if asked:
                questions[asked[0]] = Question.HUB_METRICS
            return questions

    def answered(self, number: int, report: ProcessReport) -> None:
        """Record the answer of a process."""
        with self._changed:
            self._awaited.discard(number)
            self._answers[number] = report
            self._changed.notify_all()

    def ended(self, number: int) -> None:
        """Record that a process has ended."""
        with self._changed:
            self._awaited.discard(number)
            self._answers.pop(number, None)
            self._changed.notify_all()


def _label(number: int) -> str:
    return str(number + 1)
