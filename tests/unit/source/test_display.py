"""The progress of a source for people."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tailrace.source.display import (
    NAMESPACES_SHOWN_MAX,
    SourceDisplay,
    namespace_lines,
    namespace_text,
    source_progress_line,
    source_progress_text,
    source_report_text,
)
from tailrace.source.report import (
    NamespaceProgress,
    NamespaceState,
    SourceOutcome,
    SourceProgress,
    SourceReport,
)
from tailrace.terminal.progress import LINE_S, ProgressDisplay

COPYING = NamespaceProgress("orders", NamespaceState.COPYING, 305, 400, 38.2)
FOLLOWED = NamespaceProgress("users", NamespaceState.FOLLOWING, 1200, 1200, 4.0, 7)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def progress(**changes: object) -> SourceProgress:
    given: dict[str, object] = {
        "source": "shop",
        "task": "t1",
        "leads": True,
        "tasks": 2,
        "units": 5,
        "rows": 145,
        "bad": 0,
        "seconds": 1.0,
        "rows_per_second": 132.0,
        "caught_up": False,
        "namespaces": (COPYING, FOLLOWED),
    }
    return SourceProgress(**(given | changes))  # type: ignore[arg-type]


def test_a_namespace_that_is_copied_has_a_bar_with_rows_expected_rows_and_rate() -> None:
    assert source_progress_text(progress()).splitlines() == [
        "shop: task t1, leads, 5 units of 2 tasks: 145 rows, 132 rows/s",
        "  orders  [###############.....]  76%  305 rows of about 400, 38 rows/s",
        "  users   1,200 rows copied, following, 4 rows/s, lag 7",
    ]


@pytest.mark.parametrize(
    ("rows", "expected", "text"),
    [
        (750, 1000, "[###############.....]  75%  750 rows of about 1,000"),
        (1100, 1000, "[####################] 100%  1,100 rows of about 1,000"),
        (3, None, "3 rows, copying"),
        (0, 0, "0 rows, copying"),
    ],
)
def test_a_bar_needs_a_number_of_expected_rows(rows: int, expected: int | None, text: str) -> None:
    copied = NamespaceProgress("orders", NamespaceState.COPYING, rows, expected)
    assert namespace_text(copied) == text


def test_the_bars_begin_in_one_column() -> None:
    first, second = namespace_lines((COPYING, replace(COPYING, namespace="order_lines")))
    assert first.index("[") == second.index("[")


def test_a_terminal_shows_bars_and_a_file_gets_lines() -> None:
    texts = []
    for stream in (Terminal(), io.StringIO()):
        times = iter([0.0] + [LINE_S] * 9)
        shown = ProgressDisplay(stream, times.__next__)
        with SourceDisplay(display=shown) as display:
            display(progress())
        texts.append(stream.getvalue())
    assert "[##########" in texts[0]
    assert texts[1] == source_progress_line(progress()) + "\n"


def test_a_line_of_a_task_that_does_not_lead_does_not_say_so() -> None:
    one = progress(leads=False, units=1, tasks=1, rows=1)
    assert source_progress_line(one) == "shop: task t1, 1 unit of 1 task: 1 row, 132 rows/s"


def test_a_namespace_says_what_is_left_of_it() -> None:
    waiting = NamespaceProgress("z", NamespaceState.WAITING, 0, None)
    finished = NamespaceProgress("z", NamespaceState.FINISHED, 9, 9)
    unknown = NamespaceProgress("z", NamespaceState.FOLLOWING, 1, None)
    assert namespace_text(waiting) == "0 rows, waits for other splits to finish"
    assert namespace_text(finished) == "9 rows copied, finished"
    assert namespace_text(unknown) == "1 row, following"


def test_of_many_namespaces_those_that_are_copied_are_shown_first() -> None:
    many = [
        NamespaceProgress(f"n{number:02}", NamespaceState.FOLLOWING, 1, None)
        for number in range(NAMESPACES_SHOWN_MAX + 4)
    ]
    lines = namespace_lines((*many, COPYING))
    assert lines[0].startswith("  orders")
    assert len(lines) == NAMESPACES_SHOWN_MAX + 1
    assert lines[-1] == "  and 5 more namespaces"


def test_a_line_says_that_the_reader_waits_or_that_the_task_tries_again() -> None:
    assert source_progress_line(progress(caught_up=True)).endswith("145 rows, caught up")
    waits = source_progress_line(progress(waiting="no file matches"))
    assert waits.endswith("the reader waits: no file matches")
    assert source_progress_line(progress(retrying="timeout")).endswith("retries: timeout")
    assert "145 rows, 2 dead letters" in source_progress_line(progress(bad=2))


def test_the_display_tells_once_that_the_reader_waits_and_that_the_run_stops() -> None:
    stream = io.StringIO()
    with SourceDisplay(on_stop="stopping", display=ProgressDisplay(stream)) as display:
        for _ in range(2):
            display(progress(waiting="no file"))
        for _ in range(2):
            display(progress(stopping=True))
    assert stream.getvalue() == "shop: the reader waits: no file\nstopping\n"


def test_the_closing_text_says_what_is_left_and_where_the_dead_letters_are() -> None:
    done = SourceReport("shop", "t1", SourceOutcome.DONE, 8, 0, 1.25)
    assert source_report_text(done) == "shop: task t1 has read 8 rows in 1.2 s: everything was read"
    stopped = SourceReport("shop", "t1", SourceOutcome.STOPPED, 8, 1, 1.25, "timeout")
    lines = source_report_text(stopped).splitlines()
    assert lines[0].endswith("stopped; the other tasks, or the next run, continue")
    assert lines[1] == "it was about to try again after an error: timeout"
    assert lines[2] == "1 dead letter, see: tailrace dlq shop list --by error"
