"""The tools of a soak: counts by kind of run, and sections that replace only themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.counts import count
from tests.support.evidence import (
    TITLE,
    Evidence,
    Run,
    append_line,
    read_lines,
    render_section,
    replace_sections,
)

RUN = Run("2026-01-01 00:00Z", "abc1234", "2 cores", "passed in 1.0 minutes")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 20),
        ({"TAILRACE_SOAK": "1"}, 500),
        ({"TAILRACE_SOAK": "1", "TAILRACE_COUNTS": "flips=9,kills=3"}, 3),
    ],
)
def test_a_count_is_chosen_by_the_kind_of_run(environ: dict[str, str], expected: int) -> None:
    assert count("kills", test=20, soak=500, environ=environ) == expected


def test_recorded_lines_are_read_back_in_order(tmp_path: Path) -> None:
    lines = tmp_path / "evidence.jsonl"
    claims = [Evidence("log", f"claim {n}", n, (n,), 0) for n in range(3)]
    for claim in claims:
        append_line(lines, claim)
    assert read_lines(lines) == claims


def test_a_section_shows_counts_seeds_and_violations() -> None:
    claims = [Evidence("log", "kills", 5000, (4, 5, 6, 7), 0), Evidence("log", "flips", 9, (), 1)]
    text = render_section("log", RUN, claims)
    assert "| kills | 5,000 | 4 to 7 | 0 |" in text
    assert "| flips | 9 | none | 1 |" in text


def test_writing_one_part_leaves_the_others_as_they_were() -> None:
    log, fences = (render_section(p, RUN, [Evidence(p, "x", 1, (), 0)]) for p in ("log", "fences"))
    both = replace_sections(replace_sections(TITLE, {"log": log}), {"fences": fences})
    newer = render_section("log", RUN, [Evidence("log", "x", 2, (), 0)])
    again = replace_sections(both, {"log": newer})
    assert fences in again
    assert newer in again
    assert log not in again
    assert replace_sections(again, {"log": newer}) == again
