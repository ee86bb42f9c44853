"""The `file` reader in child processes: killed at any instant, and over large files."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace import readers
from tailrace.readers.file.formats import lines
from tailrace.settings import HubSettings
from tailrace.source.reader import Until
from tailrace.source.run import SourceRun
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report

pytestmark = pytest.mark.part("pipelines")

IDLE_S = 0.001
GROWTH_BYTES_MAX = 48 << 20
MEMORY_BYTES_MAX = 300 << 20


def _open(directory: Path) -> tailrace.Hub:
    return tailrace.open(directory / "hub", sync="none", settings=HubSettings())


def _run(hub: tailrace.Hub, pattern: str, until: Until) -> SourceRun:
    log = hub.create_topic("log", partitions=1, exist_ok=True)
    letters = hub.create_topic("letters", partitions=1, exist_ok=True)
    reader = readers.file(pattern, format="jsonl", namespace="app", poll="2ms")
    return SourceRun(hub, "files", reader, log, letters, until)


def _follow(report: Report, directory: Path, pattern: str) -> None:
    """Child: read until it is killed, in small batches."""
    lines.CHUNK_BYTES = 2048  # type: ignore[misc]
    run = _run(_open(directory), pattern, Until.STOPPED)
    report("started")
    while True:
        if run.step():
            report(run.rows)
        else:
            time.sleep(IDLE_S)


class _Writer:
    """Writes numbered lines to a file that it rotates, cuts, copies and replaces meanwhile."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self._path = directory / "app.jsonl"
        self._path.write_text("")
        self._rotated = 0
        self.written = 0

    def act(self) -> None:
        """Write some lines, or rotate, truncate or replace the file."""
        if self._chance.random() < 0.1:
            self._rotate()
        elif self._chance.random() < 0.05:
            self._save()
        with self._path.open("a") as file:
            for _ in range(self._chance.randrange(40)):
                text = self._line()
                cut = self._chance.randrange(len(text))
                file.write(text[:cut])
                if self._chance.random() < 0.1:
                    file.flush()
                file.write(text[cut:])

    def _line(self) -> str:
        self.written += 1
        return f'{{"n":{self.written},"x":"{"y" * self._chance.randrange(60)}"}}\n'

    def _rotate(self) -> None:
        self._rotated += 1
        os.rename(self._path, self._directory / f"app.jsonl.{self._rotated}")
        self._path.touch()

    def _save(self) -> None:
        """Save the file as an editor does: a new one with the same bytes and some more."""
        other = self._directory / "save.tmp"
        other.write_text(self._path.read_text() + self._line())
        os.replace(other, self._path)


def _numbers(hub: tailrace.Hub) -> Iterator[int]:
    log = hub.topic("log")
    for batch in log.batches(0, 0):
        for value in batch["value"].to_pylist():
            document: Any = msgspec.json.decode(value or b"")
            yield document["n"]


def test_a_kill_at_any_instant_loses_and_repeats_no_line(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    kills = count("kills", test=6, soak=200)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    writer = _Writer(tmp_path, seed)
    pattern = str(tmp_path / "app.jsonl*")
    for _ in range(kills):
        child = Child(_follow, tmp_path, pattern)
        assert child.next_report() == "started"
        for _ in range(chance.randrange(1, 6)):
            writer.act()
            for _ in child.reports_for(chance.uniform(0.0, 0.02)):
                pass
        list(child.kill())
        assert child.exit_code == -9
        writer.act()
    with _open(tmp_path) as hub:
        for _ in range(2):
            with _run(hub, pattern, Until.NOW) as run:
                while not run.done:
                    run.step()
        found = list(_numbers(hub))
        assert run.rows == 0, "the second run found more"
    amounts = Counter(found)
    violations = [n for n in range(1, writer.written + 1) if amounts[n] != 1]
    record_evidence(
        "pipelines", "kill -9 of a file reader, its files rotated and replaced", kills, [seed],
        len(violations),
    )  # fmt: skip
    assert violations == []
    assert len(found) == writer.written


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _measure(report: Report, directory: Path, path: str) -> None:
    """Child: read a file, and report its peak memory at a tenth of the file and at the end."""
    total = os.path.getsize(path)
    with _open(directory) as hub, _run(hub, path, Until.NOW) as run:
        early = most = 0
        while not run.done:
            run.step()
            most = max(most, _memory_bytes())
            if run.bytes < total / 10:
                early = most
        report((early, most, run.rows))


def test_memory_stays_flat_over_a_large_file(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    megabytes = count("megabytes", test=50, soak=2000)
    path = tmp_path / "large.jsonl"
    block = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * (n % 150)) for n in range(10_500))
    blocks = megabytes * 1_000_000 // len(block) + 1
    with path.open("wb") as file:
        for _ in range(blocks):
            file.write(block)
    reading = Child(_measure, tmp_path, str(path))
    early, most, rows = reading.next_report(within_s=60 + megabytes)
    flat = most - early < GROWTH_BYTES_MAX and most < MEMORY_BYTES_MAX
    record_evidence(
        "pipelines", f"megabytes read as JSON lines, {most >> 20} MiB of memory at most",
        megabytes, [], int(not flat),
    )  # fmt: skip
    assert rows == blocks * 10_500
    assert most < MEMORY_BYTES_MAX
    assert most - early < GROWTH_BYTES_MAX
