"""The results of a soak: claims, gathered into the sections of `docs/evidence.md`.

Tests report through the `record_evidence` fixture, possibly from several processes at once, into
a file of JSON lines; `tests.soak` reads it back and rewrites the sections of the parts that ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

TITLE = """# Evidence

The last soak of each part: what was done, how often, from which seeds, and how many violations
were found. `make soak` writes this file; nobody edits it.
"""


class Evidence(msgspec.Struct, frozen=True):
    """One claim that a soak put to the test."""

    part: str
    what: str
    count: int
    seeds: tuple[int, ...]
    violations: int


class RecordEvidence(Protocol):
    """The `record_evidence` fixture. Call it before asserting, to record failures too."""

    def __call__(
        self, part: str, what: str, count: int, seeds: Sequence[int], violations: int
    ) -> None: ...


class Run(NamedTuple):
    """The circumstances of a soak: when, on which code and machine, and how it ended."""

    date: str
    commit: str
    machine: str
    result: str


def append_line(path: Path, evidence: Evidence) -> None:
    """Add one line, by a single write, so that lines of several processes do not mix."""
    with path.open("ab", buffering=0) as lines:
        lines.write(msgspec.json.encode(evidence) + b"\n")


def read_lines(path: Path) -> list[Evidence]:
    """All lines of the file, in order; none if no test reported."""
    if not path.exists():
        return []
    return msgspec.json.Decoder(Evidence).decode_lines(path.read_bytes())


def render_section(part: str, run: Run, claims: Iterable[Evidence]) -> str:
    """One part's section in Markdown, its heading first."""
    rows = [
        f"| {claim.what} | {claim.count:,} | {_render_seeds(claim.seeds)} | {claim.violations} |"
        for claim in sorted(claims, key=lambda claim: claim.what)
    ]
    head = [
        f"## {part}",
        "",
        f"{run.date}, commit {run.commit}, {run.machine}: {run.result}",
        "",
        "| what | count | seeds | violations |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _render_seeds(seeds: tuple[int, ...]) -> str:
    if not seeds:
        return "none"
    if len(seeds) > 2 and seeds == tuple(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def replace_sections(document: str, sections: dict[str, str]) -> str:
    """The document with these sections in place of older ones; the other parts stay as they are."""
    kept = {
        old.group(1): old.group(0).rstrip() + "\n"
        for old in re.finditer(r"^## (.+)\n(?:(?!## ).*\n?)*", document, re.MULTILINE)
    }
    return "\n".join([TITLE, *(text for _, text in sorted((kept | sections).items()))])
