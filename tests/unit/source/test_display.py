"""The progress of a source as people see it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tailrace.source.display import SourceDisplay, source_progress_line, source_progress_text
from tailrace.source.report import NamespaceProgress, SourceProgress
from tailrace.terminal.progress import LINE_S, ProgressDisplay

SHOWN = SourceProgress(
    source="shop",
    task="f00d",
    leads=False,
    tasks=2,
    units=3,
    rows=1_200,
    bad=0,
    seconds=4.0,
    rows_per_second=300.0,
    caught_up=False,
)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_has_the_task_its_part_its_rows_and_its_rate() -> None:
    assert (
        source_progress_line(SHOWN) == "shop: task f00d, 3 units of 2 tasks: 1,200 rows, 300 rows/s"
    )


def test_a_line_says_who_leads_what_was_bad_and_that_nothing_is_left() -> None:
    shown = replace(SHOWN, leads=True, units=1, tasks=1, bad=2, rows=1, caught_up=True)
    assert (
        source_progress_line(shown)
        == "shop: task f00d, leads, 1 unit of 1 task: 1 row, 2 dead letters, caught up"
    )


@pytest.mark.parametrize(
    ("namespace", "line"),
    [
        (
            NamespaceProgress("orders", 750, 1_000, copying=True),
            "[###############.....]  75%  750 rows of about 1,000",
        ),
        (
            NamespaceProgress("orders", 1_100, 1_000, copying=True),
            "[####################] 100%  1,100 rows of about 1,000",
        ),
        (NamespaceProgress("orders", 3, None, copying=True), "3 rows, copying"),
        (NamespaceProgress("orders", 0, 0, copying=True), "0 rows, copying"),
        (NamespaceProgress("orders", 12, 10, copying=False), "12 rows, following"),
    ],
)
def test_a_namespace_that_is_copied_has_a_bar(namespace: NamespaceProgress, line: str) -> None:
    text = source_progress_text(replace(SHOWN, namespaces=(namespace,)))
    assert text.splitlines()[1:] == [f"  orders  {line}"]


def test_the_bars_begin_in_one_column() -> None:
    long = NamespaceProgress("order_lines", 1, 2, copying=True)
    short = NamespaceProgress("kinds", 1, 2, copying=True)
    _, first, second = source_progress_text(replace(SHOWN, namespaces=(short, long))).splitlines()
    assert first.index("[") == second.index("[")


def test_a_terminal_shows_bars_and_a_file_gets_lines() -> None:
    shown = replace(SHOWN, namespaces=(NamespaceProgress("orders", 1, 2, copying=True),))
    texts = []
    for stream in (Terminal(), io.StringIO()):
        times = iter([0.0] + [LINE_S] * 9)
        with SourceDisplay(ProgressDisplay(stream, times.__next__)) as display:
            display(shown)
        texts.append(stream.getvalue())
    assert "[##########" in texts[0]
    assert texts[1] == source_progress_line(shown) + "\n"
