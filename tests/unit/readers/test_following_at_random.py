"""A file that anything happens to while it is followed, from seeds: each line is read once."""

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
from tests.evidence import RecordEvidence
from tests.scale import count
from tests.unit.readers.following import Followed, append, replace

pytestmark = pytest.mark.part("pipelines")

ACTS_MAX = 30


class _Author:
    """Writes numbered lines, and does to the file what people and programs do."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.path = directory / "app.jsonl"
        self._chance = chance
        self._rotations = 0
        self._rest = ""
        # Held open, a file that is deleted keeps its number from being given to another one.
        self.held = ExitStack()
        self.written = 0
        self.path.write_text(self._text(2))

    def act(self) -> str:
        """Do something; what it was."""
        acts = {self._write: 10, self._write_half_a_line: 5, self._rename: 4, self._save: 3}
        [act] = self._chance.choices(list(acts), list(acts.values()))
        act()
        return act.__name__

    def copy_away(self, look: Callable[[], object]) -> str:
        """Rotate by making another file of one, with a look in the middle of it; how."""
        plain = [path for path in self.path.parent.glob("app.jsonl.*") if path.suffix != ".gz"]
        if plain and self._chance.random() < 0.5:
            path = self._chance.choice(plain)
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            look()
            self.held.enter_context(path.open())
            path.unlink()
            return "compress"
        append(self.path, self._text())
        shutil.copy(self.path, self._rotated())
        look()
        with self.path.open("r+") as file:
            file.truncate()
        return "copy"

    def finish(self) -> None:
        """End the last line."""
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
        """What is left of the last line, and some more lines."""
        text, self._rest = self._rest, ""
        for _ in range(lines):
            self.written += 1
            text += f'{{"n":{self.written},"x":"{"y" * self._chance.randrange(200)}"}}\n'
        return text


def _play(directory: Path, seed: int) -> list[str]:
    chance = random.Random(seed)
    author = _Author(directory, chance)
    done: list[str] = []
    with author.held, Followed(f"{author.path}*", namespace="app", format="jsonl") as source:
        for _ in range(chance.randrange(ACTS_MAX)):
            for _ in range(chance.choice((0, 0, 1, 3, 30))):
                source.step()
            if chance.random() < 0.1:
                source.begin()
                done.append("begin")
            if chance.random() < 0.1:
                # Rotations that make another file of what was read come some looks apart.
                source.settle()
                done.append(author.copy_away(source.step))
                source.settle()
            else:
                done.append(author.act())
        author.finish()
        source.settle()
        source.begin(Until.NOW)
        found = Counter(source.rows())
        bad = [error for _, error, _ in source.bad() if "truncated" not in error]
    wrong = {n: found[n] for n in range(1, author.written + 1) if found[n] != 1}
    return [f"seed {seed}: {wrong}, bad {bad}, after {done}"] if wrong or bad else []


def test_each_line_is_read_once_whatever_happens_to_its_file(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    seeds = count("seeds", test=25, soak=3000)
    first = random.randrange(10**6)
    violations = []
    for seed in range(first, first + seeds):
        directory = tmp_path / str(seed)
        directory.mkdir()
        violations += _play(directory, seed)
        shutil.rmtree(directory)
    record_evidence("pipelines", "histories of a followed file", seeds, [first], len(violations))
    assert violations == []
