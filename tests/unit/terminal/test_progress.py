"""The progress of a command: drawn in place on a terminal, lines elsewhere."""

from __future__ import annotations

import io

from tailrace.terminal.progress import LINE_S, REDRAW_S, ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Seconds:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_on_a_terminal_a_drawing_replaces_the_one_before() -> None:
    stream, seconds = Terminal(), Seconds()
    with ProgressDisplay(stream, seconds) as display:
        display.show(lambda: "1 row\n2 writers")
        seconds.now = REDRAW_S
        display.show(lambda: "3 rows")
    assert stream.getvalue() == "1 row\n2 writers\n\x1b[2A\x1b[J3 rows\n\x1b[1A\x1b[J"


def test_nothing_is_computed_before_the_next_drawing_is_due() -> None:
    stream, seconds = Terminal(), Seconds()
    display = ProgressDisplay(stream, seconds)
    display.show(lambda: "1 row")
    seconds.now = REDRAW_S - 0.01
    display.show(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert stream.getvalue() == "1 row\n"


def test_a_sentence_stays_above_the_next_drawing() -> None:
    stream, seconds = Terminal(), Seconds()
    display = ProgressDisplay(stream, seconds)
    display.show(lambda: "1 row")
    display.say("stopping")
    seconds.now = REDRAW_S
    display.show(lambda: "2 rows")
    assert stream.getvalue() == "1 row\n\x1b[1A\x1b[Jstopping\n2 rows\n"


def test_a_line_wider_than_the_terminal_is_cut() -> None:
    stream = Terminal()
    ProgressDisplay(stream, Seconds()).show(lambda: "x" * 1000)
    assert len(stream.getvalue()) < 1000


def test_without_a_terminal_a_line_is_written_at_intervals_if_there_is_one() -> None:
    stream, seconds = io.StringIO(), Seconds()
    display = ProgressDisplay(stream, seconds)
    for now in (0.0, LINE_S - 0.1, LINE_S, LINE_S + 0.1, 2 * LINE_S):
        seconds.now = now
        display.show(lambda: "drawn", lambda: f"line {seconds.now:g}")
    seconds.now = 4 * LINE_S
    display.show(lambda: "drawn")
    display.clear()
    assert stream.getvalue() == "line 5\nline 10\n"
