"""`python -m bench.compare CHECKOUT`: is this code slower than that of another checkout?

Both checkouts run their own benchmarks, in turns, with the packages of this environment. A row is
slower when the median of its ratios to the other checkout is beyond the noise: the largest ratio
between two successive runs of the other checkout. The exit status is 1 when a row is slower.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

from bench.measure import OURS, say

ROOT: Final = Path(__file__).parents[1]
GROUPS: Final = ("append", "push", "group")
"""The groups of rows that change with the code of topics, groups and delivery."""
RUNS: Final = 3

Figures: TypeAlias = Mapping[str, float]
"""What one run measured, by the name of the row and of what was measured. More is better."""

_SCALES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_RATE: Final = re.compile(r"^(?P<name>.*?) ?(?P<number>[\d.]+) ?(?P<scale>[kMG]?) \w+/(?:CPU )?s$")
_TIME: Final = re.compile(r"(?P<name>p50)? ?(?P<number>[\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of this code against the other checkout. Ratios over 1 say that it is faster."""

    name: str
    ratio: float
    noise: float

    @property
    def slower(self) -> bool:
        """True if this code is slower by more than the noise."""
        return self.ratio * self.noise < 1


def figures_of(page: str) -> Figures:
    """Return the figures of a page that a run of the benchmarks printed, without the peers'."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[1] or cells[1] in ("work", "---"):
            continue
        for figure in cells[2].split("<br>"):
            if (rate := _RATE.match(figure)) and rate["name"].startswith(OURS):
                speed = float(rate["number"]) * _SCALES[rate["scale"]]
                found[f"{cells[1]}: {rate['name']}"] = speed
            elif (time := _TIME.search(figure)) and not figure.startswith("a pipe"):
                found.setdefault(f"{cells[1]}: time", 1 / max(float(time["number"]), 1e-3))
    return found


def compare(ours: Sequence[Figures], others: Sequence[Figures]) -> list[Comparison]:
    """Compare runs that took turns, figure by figure. Figures that only one has are left out."""
    shared = [name for name in others[0] if all(name in run for run in [*ours, *others])]
    return [
        Comparison(
            name,
            median(our[name] / other[name] for our, other in zip(ours, others, strict=True)),
            max(
                max(one[name] / next_[name], next_[name] / one[name])
                for one, next_ in pairwise(others)
            ),
        )
        for name in shared
    ]


def main(arguments: Sequence[str]) -> int:
    """Run both checkouts in turns, print a line for each figure; 1 if a row is slower."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the root of the other checkout")
    parser.add_argument("--only", action="append", help="one group of rows; may be repeated")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each, default {RUNS}")
    chosen = parser.parse_args(arguments)
    if not (chosen.checkout / "bench" / "__main__.py").is_file():
        parser.error(f"{chosen.checkout} is not a checkout of Tailrace with benchmarks")
    if chosen.runs < 2:
        parser.error(f"--runs {chosen.runs} shows no noise; valid: 2 or more")
    ours: list[Figures] = []
    others: list[Figures] = []
    for number in range(chosen.runs):
        say(f"run {number + 1} of {chosen.runs}")
        others.append(_run(chosen.checkout.resolve(), chosen.only or GROUPS))
        ours.append(_run(ROOT, chosen.only or GROUPS))
    found = compare(ours, others)
    for row in found:
        verdict = "SLOWER" if row.slower else "as fast"
        print(f"{row.ratio:6.2f}x  noise {row.noise:5.2f}x  {verdict:8}  {row.name}")
    return 1 if any(row.slower for row in found) else 0


def _run(checkout: Path, groups: Sequence[str]) -> Figures:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout)])
    }
    command = [sys.executable, "-m", "bench", "--quick"]
    command += [word for group in groups for word in ("--only", group)]
    done = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return figures_of(done.stdout)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
