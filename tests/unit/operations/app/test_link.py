"""A supervisor and its process tell each other what they have to know."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace import telemetry
from tailrace.operations.app.activity import SubscriptionActivity
from tailrace.operations.app.link import (
    ProcessReport,
    Question,
    ReportKind,
    SupervisedLink,
    SupervisorLink,
)
from tailrace.reporting.histogram import Histogram
from tailrace.reporting.sample import Sample
from tests.support.waiting import until


class Ends:
    """Both ends of a link, in one process."""

    def __init__(self) -> None:
        self.supervisor = SupervisorLink()
        self.lost = threading.Event()
        inherited = os.dup(self.supervisor.inherited)
        os.set_inheritable(inherited, True)
        self.process = SupervisedLink(inherited, self.lost.set)
        self.inherited = inherited
        self.supervisor.process_started()
        self.reports: list[ProcessReport] = []

    def read(self) -> list[ProcessReport]:
        self.reports += self.supervisor.reports() or []
        return self.reports


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    with closing(ends.supervisor):
        yield ends
    assert ends.lost.wait(60)


def test_reports_arrive_in_their_order(ends: Ends) -> None:
    assert ends.supervisor.reports() == []
    ends.process.say_ready()
    ends.process.say_refused()
    until(lambda: len(ends.read()) == 2)
    assert [report.kind for report in ends.reports] == [ReportKind.READY, ReportKind.REFUSED]


def test_the_activity_is_reported_whenever_it_is_asked_for(ends: Ends) -> None:
    ends.process.activity = lambda: {"mailer": SubscriptionActivity(4, 12, 1204, 3, 1)}
    ends.supervisor.ask(Question.ACTIVITY)
    until(lambda: len(ends.read()) == 1)
    assert ends.reports[0].activity == {"mailer": SubscriptionActivity(4, 12, 1204, 3, 1)}


class Measured:
    """The metrics of a process: 4 shards, and a histogram of the hub's answers."""

    def __init__(self) -> None:
        self.own = Sample(telemetry.WORKER_SHARDS, ("mailer",), 4)
        self.seconds = Histogram(telemetry.PUSH_SECONDS)
        self.seconds.observe(0.3)

    def own_samples(self) -> list[Sample]:
        return [self.own]

    def samples(self) -> list[Sample]:
        return [self.own, Sample(telemetry.PUSH_SECONDS, ("orders",), self.seconds.value)]

    def unready(self) -> str | None:
        return "it has not joined"


def test_the_metrics_are_reported_whenever_they_are_asked_for(ends: Ends) -> None:
    measured = Measured()
    ends.process.metrics = measured
    ends.supervisor.ask(Question.METRICS)
    until(lambda: len(ends.read()) == 1)
    ends.supervisor.ask(Question.HUB_METRICS)
    until(lambda: len(ends.read()) == 2)
    own, whole = ends.reports
    assert own.unready == "it has not joined"
    assert [each.sample("") for each in own.samples] == measured.own_samples()
    assert [each.sample("") for each in whole.samples] == measured.samples()


def test_a_process_that_starts_has_no_metrics_yet(ends: Ends) -> None:
    ends.supervisor.ask(Question.METRICS)
    until(lambda: len(ends.read()) == 1)
    assert (ends.reports[0].samples, ends.reports[0].unready) == ([], "starting")


def test_the_process_learns_of_the_end_of_its_supervisor(ends: Ends) -> None:
    assert not ends.lost.is_set()
    ends.supervisor.close()
    assert ends.lost.wait(60)
    ends.process.say_ready()  # Nobody hears it, and that is no error.


def test_programs_that_a_process_starts_do_not_inherit_the_link(ends: Ends) -> None:
    assert not os.get_inheritable(ends.inherited)
