"""The text of metrics, read by the parser of Prometheus' own Python client."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tailrace import telemetry
from tailrace.reporting.exposition import exposition
from tailrace.reporting.histogram import Histogram
from tailrace.reporting.metric import counter
from tailrace.reporting.sample import Sample


def parsed(*samples: Sample) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of each series, by its name and its labels in order."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(samples))
        for sample in family.samples
    }


def test_counters_and_gauges_are_lines_with_help_and_type() -> None:
    lines = exposition([Sample(telemetry.WORKER_SHARDS, ("mailer",), 4)]).splitlines()
    assert lines == [
        "# HELP tailrace_worker_shards Shards that the process owns.",
        "# TYPE tailrace_worker_shards gauge",
        'tailrace_worker_shards{subscription="mailer"} 4',
    ]


def test_the_lines_of_a_metric_stand_together() -> None:
    samples = [
        Sample(telemetry.WORKER_SHARDS, ("b",), 1),
        Sample(telemetry.WORKER_IN_FLIGHT, ("b",), 2.5),
        Sample(telemetry.WORKER_SHARDS, ("a",), 3),
    ]
    lines = [line for line in exposition(samples).splitlines() if not line.startswith("#")]
    assert lines == [
        'tailrace_worker_in_flight_messages{subscription="b"} 2.5',
        'tailrace_worker_shards{subscription="a"} 3',
        'tailrace_worker_shards{subscription="b"} 1',
    ]


def test_the_process_of_a_supervisor_is_a_label() -> None:
    found = parsed(Sample(telemetry.WORKER_SHARDS, ("mailer",), 4, process="2"))
    labels = (("process", "2"), ("subscription", "mailer"))
    assert found == {("tailrace_worker_shards", labels): 4}


def test_values_of_labels_are_escaped() -> None:
    name = 'a"b\\c\nd{e="f"} 7'
    found = parsed(Sample(telemetry.WORKER_SHARDS, (name,), 1))
    assert found == {("tailrace_worker_shards", (("subscription", name),)): 1}


def test_help_texts_are_escaped() -> None:
    odd = counter("tailrace_odd_total", "", "one\nline \\ only")
    (family,) = text_string_to_metric_families(exposition([Sample(odd, (), 1)]))
    assert family.documentation == "one\nline \\ only"


def test_the_buckets_of_a_histogram_are_cumulative() -> None:
    seconds = Histogram(telemetry.WORKER_COMMIT_SECONDS)
    for value in (0.0001, 0.001, 0.0011, 99.0):
        seconds.observe(value)
    found = parsed(Sample(telemetry.WORKER_COMMIT_SECONDS, ("mailer",), seconds.value))

    def bucket(le: str) -> float:
        labels = (("le", le), ("subscription", "mailer"))
        return found["tailrace_worker_commit_seconds_bucket", labels]

    assert [bucket(le) for le in ("0.0005", "0.001", "0.0025", "5", "+Inf")] == [1, 2, 3, 3, 4]
    labels = (("subscription", "mailer"),)
    assert found["tailrace_worker_commit_seconds_count", labels] == 4
    assert abs(found["tailrace_worker_commit_seconds_sum", labels] - 99.0022) < 1e-9


def test_nothing_to_report_is_a_valid_text() -> None:
    assert parsed() == {}
