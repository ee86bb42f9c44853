"""The time to start a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import Scale, Timer, Turn, take_turns
from bench.report import Goal, Row, Sense

HELP = "tailrace --help"
PYTHON = "python -c pass"
SECONDS_MAX = 0.3


def rows(scale: Scale) -> list[Row]:
    """Measure `tailrace --help`."""
    contenders = {
        HELP: _running(
            "import sys; sys.argv[0] = 'tailrace'; from tailrace.cli import main; main()"
        ),
        PYTHON: _running("pass"),
    }
    rates = take_turns(HELP, contenders, 2 * scale.rounds + 1)
    seconds = {name: 1 / rates.median(name) for name in contenders}
    figures = tuple(f"{name} {taken:.3f} s" for name, taken in seconds.items())
    goal = Goal("time", seconds[HELP], SECONDS_MAX, Sense.AT_MOST, " s")
    return [Row(HELP, figures, (goal,))]


def _running(code: str) -> Turn:
    command = [sys.executable, "-c", code, "--help"]

    def turn(_directory: Path, timer: Timer) -> int:
        with timer.running():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return 1

    return turn
