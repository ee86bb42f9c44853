"""The metrics of all processes of a supervisor, as its server gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tailrace import telemetry
from tailrace.operations.app.link import ProcessReport, Question, ReportKind, SentSample
from tailrace.operations.app.process_metrics import ProcessMetrics
from tailrace.reporting.histogram import Histogram
from tailrace.reporting.sample import Sample
from tests.support.waiting import in_thread, until

SHARDS = Sample(telemetry.WORKER_SHARDS, ("mailer",), 2)
LAG = Sample(telemetry.GROUP_LAG, ("billing",), 7)


def report(*samples: Sample, unready: str | None = None) -> ProcessReport:
    sent = [SentSample.of(each) for each in samples]
    return ProcessReport(ReportKind.MEASURED, samples=sent, unready=unready)


class Supervised:
    """The metrics of processes that run, without the processes."""

    def __init__(self, processes: int, answer_s: float = 60.0) -> None:
        self.metrics = ProcessMetrics(processes, answer_s)
        self.woken = threading.Event()
        self.metrics.begin(self.woken.set)
        self.found: list[dict[tuple[str, ...], float]] = []

    def scrape(self) -> threading.Thread:
        """Ask for the metrics in a thread, and wait until the supervisor has to do something."""
        thread = in_thread(lambda: self.found.append(self.values(self.metrics.samples())))
        assert self.woken.wait(60)
        self.woken.clear()
        return thread

    def ready(self) -> Callable[[], str | None]:
        """Ask whether all are ready, in a thread; the result waits for the answer."""
        answer: list[str | None] = []
        thread = in_thread(lambda: answer.append(self.metrics.unready()))
        assert self.woken.wait(60)
        self.woken.clear()

        def result() -> str | None:
            thread.join()
            return answer[0]

        return result

    @staticmethod
    def values(samples: list[Sample]) -> dict[tuple[str, ...], float]:
        return {
            (each.metric.name.removeprefix("tailrace_"), *each.labels, each.process): each.value
            for each in samples
            if isinstance(each.value, int | float)
        }


def test_each_process_is_a_label_and_the_metrics_of_the_hub_are_of_none() -> None:
    supervised = Supervised(2)
    metrics = supervised.metrics
    for number in (0, 1, 1):
        metrics.started(number)
    scraping = supervised.scrape()
    assert metrics.questions([1, 0]) == {0: Question.HUB_METRICS, 1: Question.METRICS}
    metrics.answered(1, report(SHARDS))
    metrics.answered(0, report(SHARDS, LAG))
    scraping.join()
    assert supervised.found == [
        {
            ("process_up", "1", ""): 1,
            ("process_starts_total", "1", ""): 1,
            ("process_up", "2", ""): 1,
            ("process_starts_total", "2", ""): 2,
            ("worker_shards", "mailer", "1"): 2,
            ("worker_shards", "mailer", "2"): 2,
            ("group_lag_messages", "billing", ""): 7,
        }
    ]


def test_nobody_is_asked_without_a_scrape() -> None:
    assert Supervised(1).metrics.questions([0]) == {}


def test_a_process_that_does_not_answer_is_missing_and_is_not_asked_again_before_it_does() -> None:
    supervised = Supervised(2, answer_s=0.01)
    metrics = supervised.metrics
    scraping = supervised.scrape()
    assert metrics.questions([0, 1]) == {0: Question.HUB_METRICS, 1: Question.METRICS}
    metrics.answered(1, report(SHARDS))
    scraping.join()
    until(lambda: len(supervised.found) == 1)
    assert supervised.found[0]["process_up", "1", ""] == 0
    scraping = supervised.scrape()
    assert metrics.questions([0, 1]) == {1: Question.HUB_METRICS}
    scraping.join()
    metrics.answered(0, report())
    scraping = supervised.scrape()
    assert set(metrics.questions([0, 1])) == {0}
    scraping.join()


def test_a_process_that_ends_is_not_waited_for() -> None:
    supervised = Supervised(2)
    scraping = supervised.scrape()
    supervised.metrics.questions([0, 1])
    supervised.metrics.answered(1, report(SHARDS))
    supervised.metrics.ended(0)
    scraping.join()
    (found,) = supervised.found
    assert found["process_up", "1", ""] == 0
    assert found["process_up", "2", ""] == 1


def test_scrapes_at_the_same_time_all_get_the_answers() -> None:
    supervised = Supervised(1)
    first = supervised.scrape()
    supervised.metrics.questions([0])
    second = supervised.scrape()
    assert supervised.metrics.questions([0]) == {}, "it is asked already"
    supervised.metrics.answered(0, report(SHARDS))
    first.join()
    second.join()
    assert [found["worker_shards", "mailer", "1"] for found in supervised.found] == [2, 2]


def test_all_processes_have_to_be_ready() -> None:
    supervised = Supervised(2)
    metrics = supervised.metrics
    result = supervised.ready()
    metrics.questions([0])
    metrics.answered(0, report())
    assert result() == "process 2 does not answer"
    for second, expected in (("starting", "process 2: starting"), (None, None)):
        result = supervised.ready()
        metrics.questions([0, 1])
        metrics.answered(0, report())
        metrics.answered(1, report(unready=second))
        assert result() == expected


def test_before_the_supervisor_begins_and_after_its_end_nothing_is_waited_for() -> None:
    metrics = ProcessMetrics(1)
    assert metrics.unready() == "process 1 does not answer"
    supervised = Supervised(1)
    scraping = supervised.scrape()
    supervised.metrics.end()
    scraping.join()
    assert supervised.metrics.unready() == "process 1 does not answer"


def test_histograms_pass_the_link() -> None:
    seconds = Histogram(telemetry.WORKER_CALL_SECONDS)
    seconds.observe(0.2)
    sample = Sample(telemetry.WORKER_CALL_SECONDS, ("mailer",), seconds.value)
    assert SentSample.of(sample).sample("3") == sample._replace(process="3")
