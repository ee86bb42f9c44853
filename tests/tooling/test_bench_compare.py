"""Comparing this code with another checkout."""

from __future__ import annotations

import pytest

from bench.compare import compare, figures_of

PAGE = """\
| work | measured | goal | figure | |
|---|---|---|---|---|
| push_many | tailrace 1.5 M messages/CPU s<br>SQLite 266 k messages/CPU s | x | 0.78x | reached |
| | | against SQLite >= 20.00x | 21.79x | reached |
| push to a handler | tailrace p50 2.50 ms, p90 3.72 ms<br>a pipe p50 0.14 ms | | 2.5 | |
| a consumer joins | 47 ms<br>Kafka, documented | time <= 0.1 s | 0.0474 s | reached |
"""


def test_figures_are_those_of_tailrace_and_more_is_better() -> None:
    assert figures_of(PAGE) == {
        "push_many: tailrace": 1.5e6,
        "push to a handler: time": pytest.approx(1 / 2.5),
        "a consumer joins: time": pytest.approx(1 / 47),
    }


def test_a_row_is_slower_only_beyond_the_noise_of_the_other_checkout() -> None:
    others = [{"steady": 100.0, "noisy": 100.0}, {"steady": 101.0, "noisy": 200.0}]
    ours = [{"steady": 90.0, "noisy": 60.0}, {"steady": 91.0, "noisy": 110.0}]
    steady, noisy = compare(ours, others)
    assert (steady.name, steady.slower) == ("steady", True)
    assert (noisy.name, noisy.slower) == ("noisy", False)


def test_a_row_that_is_faster_is_not_slower() -> None:
    (row,) = compare([{"a": 300.0}, {"a": 310.0}], [{"a": 100.0}, {"a": 101.0}])
    assert row.ratio == pytest.approx(3.03, abs=0.05)
    assert not row.slower
