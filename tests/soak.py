"""`python -m tests.soak [PART]`: run the tests of one part, or of all, at their full counts.

The tests of a part carry `@pytest.mark.part("...")`. Afterwards the sections of `docs/evidence.md`
of the parts that ran say what was done and found, whether the soak passed or not. The exit status
is pytest's.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.support.evidence import (
    TITLE,
    Evidence,
    Run,
    read_lines,
    render_section,
    replace_sections,
)

ROOT = Path(__file__).parent.parent
EVIDENCE = ROOT / "docs" / "evidence.md"
TEST_SECONDS_MAX = 2700


def main(arguments: list[str]) -> int:
    """Run the soak and write its evidence."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: python -m tests.soak [PART]", file=sys.stderr)
        return 2
    start = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory() as directory:
        lines = Path(directory) / "evidence.jsonl"
        status = _run_pytest(arguments, lines)
        claims = read_lines(lines)
    if status == 5:
        print(f"no test has {' '.join(['part', *arguments])}", file=sys.stderr)
        return status
    _write(claims, _describe(start, status))
    return status


def _run_pytest(part: list[str], lines: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", "part"]
    command += [f"--timeout={TEST_SECONDS_MAX}", *(f"--part={name}" for name in part)]
    environment = os.environ | {"TAILRACE_SOAK": "1", "TAILRACE_EVIDENCE": str(lines)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _describe(start: datetime.datetime, status: int) -> Run:
    minutes = (datetime.datetime.now(datetime.UTC) - start).total_seconds() / 60
    return Run(
        date=start.strftime("%Y-%m-%d %H:%MZ"),
        commit=_commit(),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        result=f"{'passed' if status == 0 else 'FAILED'} in {minutes:.1f} minutes",
    )


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests")
    return (git("rev-parse", "--short", "HEAD") or "none") + (" with changes" if changed else "")


def _write(claims: list[Evidence], run: Run) -> None:
    by_part: defaultdict[str, list[Evidence]] = defaultdict(list)
    for claim in claims:
        by_part[claim.part].append(claim)
    sections = {part: render_section(part, run, found) for part, found in by_part.items()}
    before = EVIDENCE.read_text() if EVIDENCE.exists() else TITLE
    EVIDENCE.write_text(replace_sections(before, sections))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
