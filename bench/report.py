"""The results of a run, as values and as the table of `results.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from bench.measure import OURS, Rates

TITLE = """# Speed

Written by `make bench`. All contenders of a row take turns in each round. A ratio compares two
contenders of the same round; the table shows the median of the rounds. Rates depend on the machine
and its load, ratios much less. [docs/performance.md](../docs/performance.md) describes each row.
"""


class Sense(Enum):
    """The good side of a goal."""

    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and its target. `reason` explains a figure that misses the target."""

    what: str
    measured: float
    wanted: float
    sense: Sense = Sense.AT_LEAST
    unit: str = "x"
    reason: str = ""

    @property
    def reached(self) -> bool:
        """True if the figure meets the target."""
        if self.sense is Sense.AT_LEAST:
            return self.measured >= self.wanted
        return self.measured <= self.wanted


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work: the rates of all contenders, the goals, and reasons for missing rates."""

    work: str
    figures: tuple[str, ...]
    goals: tuple[Goal, ...] = ()
    missing: tuple[str, ...] = field(default=())


def against(rates: Rates, other: str, wanted: float, *, reason: str = "") -> Goal:
    """Return the goal of a ratio to another contender."""
    return Goal(f"against {other}", rates.ratio(OURS, other), wanted, reason=reason)


def figures_of(rates: Rates, unit: str) -> tuple[str, ...]:
    """Return the median rate of every contender, as text."""
    each = f"{unit}/{rates.timed.value}"
    return tuple(f"{name} {quantity(rates.median(name))} {each}" for name in rates.by_name)


def information(rates: Rates, *others: str) -> tuple[str, ...]:
    """Return ratios without a goal, as text."""
    return tuple(f"{rates.ratio(OURS, other):.2f}x {other}" for other in others)


def quantity(number: float) -> str:
    """Format a number without its unit: 1.23 M, 45.6 k, 0.12."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def render(machine: Sequence[str], rows: Sequence[Row]) -> str:
    """Render all rows as a page."""
    lines = [TITLE, *(f"- {fact}" for fact in machine), ""]
    lines += ["| work | measured | goal | figure | |", "|---|---|---|---|---|"]
    for row in rows:
        lines += _lines(row)
    goals = [goal for row in rows for goal in row.goals]
    missed = [(row, goal) for row in rows for goal in row.goals if not goal.reached]
    lines += ["", f"{len(goals) - len(missed)} of {len(goals)} goals reached."]
    if missed:
        lines += ["", "## Not reached", ""]
        lines += [f"- *{row.work}*, {goal.what}: {_reason(goal)}" for row, goal in missed]
    absent = [f"- *{row.work}*: {text}" for row in rows for text in row.missing]
    if absent:
        lines += ["", "## Not measured", "", *absent]
    return "\n".join(lines) + "\n"


def summary(row: Row) -> str:
    """Return a row in one line, for progress output."""
    verdicts = [
        f"{goal.what} {_figure(goal.measured, goal.unit)}, "
        f"goal {goal.sense.value} {_figure(goal.wanted, goal.unit)}: "
        f"{'reached' if goal.reached else 'NOT REACHED'}"
        for goal in row.goals
    ]
    return "; ".join([row.work, *row.figures, *verdicts, *row.missing])


def _lines(row: Row) -> list[str]:
    measured = "<br>".join(row.figures)
    if not row.figures:
        return [f"| {row.work} | | | | not measured |"]
    if not row.goals:
        return [f"| {row.work} | {measured} | | | for information |"]
    lines = []
    for number, goal in enumerate(row.goals):
        head = f"| {row.work} | {measured}" if number == 0 else "| | "
        wanted = f"{goal.what} {goal.sense.value} {_figure(goal.wanted, goal.unit)}"
        figure = _figure(goal.measured, goal.unit)
        verdict = "reached" if goal.reached else "**NOT REACHED**"
        lines.append(f"{head} | {wanted} | {figure} | {verdict} |")
    return lines


def _figure(number: float, unit: str) -> str:
    return f"{number:.2f}x" if unit == "x" else f"{quantity(number)}{unit}"


def _reason(goal: Goal) -> str:
    return goal.reason or "not explained yet; a busy machine may have cut into the run"
