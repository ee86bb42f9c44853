"""Histograms: each value is counted once, whoever adds it and whenever somebody reads."""

from __future__ import annotations

import threading

from tailrace import telemetry
from tailrace.reporting.histogram import FRESH_MAX, Histogram, HistogramValue


def test_a_value_at_a_bound_is_within_it() -> None:
    seconds = Histogram(telemetry.PUSH_SECONDS)
    for value in (0.0005, 0.00051, 99.0):
        seconds.observe(value)
    counts, total = seconds.value
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (1, 1, 1, 3)
    assert abs(total - 99.00101) < 1e-9


def test_the_values_of_several_threads_are_all_counted() -> None:
    seconds = Histogram(telemetry.PUSH_SECONDS)
    each, read = 3 * FRESH_MAX + 1, []

    def observe() -> None:
        for _ in range(each):
            seconds.observe(1.0)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        read.append(sum(seconds.value.counts))
    assert sum(seconds.value.counts) == 4 * each
    assert seconds.value.total == 4.0 * each
    assert read == sorted(read)


def test_histograms_are_summed_up_bucket_by_bucket() -> None:
    one, two = HistogramValue((1, 0, 2), 3.0), HistogramValue((0, 5, 1), 0.5)
    assert one.plus(two) == HistogramValue((1, 5, 3), 3.5)
