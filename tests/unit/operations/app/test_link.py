"""A supervisor and its process tell each other what they have to know."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace.operations.app.activity import SubscriptionActivity
from tailrace.operations.app.link import ProcessReport, ReportKind, SupervisedLink, SupervisorLink
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
    ends.supervisor.ask()
    until(lambda: len(ends.read()) == 1)
    assert ends.reports[0].activity == {"mailer": SubscriptionActivity(4, 12, 1204, 3, 1)}


def test_the_process_learns_of_the_end_of_its_supervisor(ends: Ends) -> None:
    assert not ends.lost.is_set()
    ends.supervisor.close()
    assert ends.lost.wait(60)
    ends.process.say_ready()  # Nobody hears it, and that is no error.


def test_programs_that_a_process_starts_do_not_inherit_the_link(ends: Ends) -> None:
    assert not os.get_inheritable(ends.inherited)
