"""Files with random changes, from seeds, while they are followed: each line is read once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.source.reader import Until
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.unit.readers.file.followed_files import FollowedFiles, append, replace
from tests.unit.readers.file.passed_files import PassedFiles

pytestmark = pytest.mark.part("pipelines")

ACTS_MAX = 30


class _Author:
    """Writes numbered lines to a file, and rotates, saves and compresses it."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.path = directory / "app.jsonl"
        self._chance = chance
        self._rotations = 0
        self._rest = ""
        # A deleted file that is held open keeps its inode from being reused.
        self.held = ExitStack()
        self.written = 0
        self.path.write_text(self._text(2))

    def act(self) -> str:
        """Do one random action; return its name."""
        acts = {self._write: 10, self._write_half_a_line: 5, self._rename: 4, self._save: 3}
        [act] = self._chance.choices(list(acts), list(acts.values()))
        act()
        return act.__name__

    def copy_away(self, poll: Callable[[], object]) -> str:
        """Rotate by copying or compressing, with a poll in the middle; return which."""
        plain = [path for path in self.path.parent.glob("app.jsonl.*") if path.suffix != ".gz"]
        if plain and self._chance.random() < 0.5:
            path = self._chance.choice(plain)
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            poll()
            self.held.enter_context(path.open())
            path.unlink()
            return "compress"
        append(self.path, self._text())
        shutil.copy(self.path, self._rotated())
        poll()
        with self.path.open("r+") as file:
            file.truncate()
        return "copy"

    def finish(self) -> None:
        """Write the rest of the last line."""
        append(self.path, self._text())

    def _write(self) -> None:
        append(self.path, self._text(self._chance.randrange(1, 4)))

    def _write_half_a_line(self) -> None:
        text = self._text(1)
        cut = self._chance.randrange(len(text) + 1)
        self._rest = text[cut:]
        append(self.path, text[:cut])

    def _rename(self) -> None:
        append(self.path, self._text())
        os.rename(self.path, self._rotated())
        self.path.write_text(self._text(self._chance.randrange(3)))

    def _save(self) -> None:
        append(self.path, self._text())
        self.held.enter_context(self.path.open())
        replace(self.path, self.path.read_text() + self._text(1))

    def _rotated(self) -> Path:
        self._rotations += 1
        return self.path.with_name(f"app.jsonl.{self._rotations}")

    def _text(self, lines: int = 0) -> str:
        """Return the rest of the last line, and `lines` more lines."""
        text, self._rest = self._rest, ""
        for _ in range(lines):
            self.written += 1
            text += f'{{"n":{self.written},"x":"{"y" * self._chance.randrange(200)}"}}\n'
        return text


def _play(directory: Path, seed: int, kind: type[FollowedFiles]) -> list[str]:
    chance = random.Random(seed)
    author = _Author(directory, chance)
    done: list[str] = []
    with author.held, kind(f"{author.path}*", namespace="app", format="jsonl") as source:
        for _ in range(chance.randrange(ACTS_MAX)):
            for _ in range(chance.choice((0, 0, 1, 3, 30))):
                source.step()
            if chance.random() < 0.1:
                source.begin()
                done.append("begin")
            if chance.random() < 0.1:
                # Rotations by copy are some polls apart.
                source.drain()
                done.append(author.copy_away(source.step))
                source.drain()
            else:
                done.append(author.act())
        author.finish()
        source.drain()
        source.begin(Until.NOW)
        found = Counter(source.rows())
        bad = [error for _, error, _ in source.bad() if "truncated" not in error]
    wrong = {n: found[n] for n in range(1, author.written + 1) if found[n] != 1}
    return [f"seed {seed}: {wrong}, bad {bad}, after {done}"] if wrong or bad else []


def _play_all(directory: Path, first: int, seeds: int, kind: type[FollowedFiles]) -> list[str]:
    violations = []
    for seed in range(first, first + seeds):
        each = directory / str(seed)
        each.mkdir()
        violations += _play(each, seed, kind)
        shutil.rmtree(each)
    return violations


def test_each_line_is_read_once_whatever_happens_to_its_file(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    seeds = count("seeds", test=25, soak=3000)
    first = random.randrange(10**6)
    violations = _play_all(tmp_path, first, seeds, FollowedFiles)
    record_evidence("pipelines", "histories of a followed file", seeds, [first], len(violations))
    assert violations == []


def test_each_line_is_read_once_while_two_tasks_pass_its_file_to_each_other(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    seeds = count("seeds", test=25, soak=3000)
    first = random.randrange(10**6)
    violations = _play_all(tmp_path, first, seeds, PassedFiles)
    record_evidence(
        "pipelines", "histories of a file that tasks pass on", seeds, [first], len(violations)
    )
    assert violations == []
