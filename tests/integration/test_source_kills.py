"""Files that several tasks copy and follow, while tasks are killed and the files change."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tailrace
from tailrace import Mode, Partition, Source, readers
from tailrace.topic.reading import batches_within
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report, stop
from tests.support.waiting import until

pytestmark = [pytest.mark.part("sources"), pytest.mark.timeout(2400)]

FILES = 20
TASKS = 3
LINE = b'{"file":"%03d","line":"%010d","fill":"' + b"x" * 57 + b'"}\n'
LINE_BYTES = len(LINE % (0, 0))
READ_S = 1800.0


class GrowingFiles:
    """Files of numbered lines that grow, are rotated, and appear."""

    def __init__(self, directory: Path, bytes: int, chance: random.Random) -> None:
        self._directory = directory
        self._chance = chance
        self.lines: list[int] = []
        directory.mkdir()
        for _ in range(FILES):
            self.appear(bytes // FILES // LINE_BYTES)
        self.copied = list(self.lines)
        """The lines of each file when the tasks begin."""

    @property
    def pattern(self) -> str:
        return str(self._directory / "*.jsonl*")

    @property
    def total(self) -> int:
        return sum(self.lines)

    def change(self) -> None:
        """Append to some files, rotate one, and let one appear."""
        for _ in range(5):
            self._append(self._chance.randrange(len(self.lines)), 50)
        self._rotate(self._chance.randrange(len(self.lines)))
        self.appear(100)

    def appear(self, lines: int) -> None:
        self.lines.append(0)
        self._append(len(self.lines) - 1, lines)

    def _rotate(self, file: int) -> None:
        """Rename a file, and begin another one of its name."""
        path = self._path(file)
        path.rename(path.with_name(f"{path.name}.{self.total}"))
        self._append(file, 10)

    def _append(self, file: int, lines: int) -> None:
        first = self.lines[file]
        with self._path(file).open("ab") as opened:
            for start in range(first, first + lines, 10_000):
                numbers = range(start, min(start + 10_000, first + lines))
                opened.write(b"".join(LINE % (file, number) for number in numbers))
        self.lines[file] += lines

    def _path(self, file: int) -> Path:
        return self._directory / f"f{file:03d}.jsonl"


def read_until_killed(report: Report, directory: Path, pattern: str, range_bytes: int) -> None:
    """Child: one task of the source."""
    with tailrace.open(directory / "hub", sync="none") as hub:
        report("started")
        reader = readers.file(pattern, format="jsonl", range_bytes=range_bytes, poll="20ms")
        Source("lines", reader).run(hub)


def batches(hub: tailrace.Hub) -> Iterator[Any]:
    """Yield all records of the commit log, as columns."""
    log, where = hub.backend.log, Partition("lines.commits", 0, 0)
    return batches_within(log, where, 0, log.bounds(where).end, 8 << 20)


def has_read(hub: tailrace.Hub, records: int) -> bool:
    """True if the commit log has that many records."""
    if "lines.commits" not in hub.topics():
        return False
    return sum(hub.topic("lines.commits").storage_topics[0].ends) >= records


def is_complete(batch: Any) -> Any:
    """Return a mask of the records with which copies end."""
    return pa.array(batch["mode"].to_numpy() == int(Mode.COMPLETE))


def found_lines(hub: tailrace.Hub) -> dict[int, npt.NDArray[np.int64]]:
    """Return the numbers of the lines of each file in the commit log, in its order."""
    found: defaultdict[int, list[npt.NDArray[np.int64]]] = defaultdict(list)
    powers = 10 ** np.arange(9, -1, -1)
    for batch in batches(hub):
        rows = batch.filter(pc.invert(is_complete(batch)))
        text = b"".join(rows["value"].to_pylist())
        assert len(text) == rows.num_rows * (LINE_BYTES - 1)
        bytes = np.frombuffer(text, np.uint8).reshape(rows.num_rows, LINE_BYTES - 1) - ord("0")
        files = bytes[:, 9:12] @ np.array([100, 10, 1])
        numbers = bytes[:, 22:32].astype(np.int64) @ powers
        for file in np.unique(files):
            found[int(file)].append(numbers[files == file])
    return {file: np.concatenate(parts) for file, parts in found.items()}


def completed(hub: tailrace.Hub) -> Counter[tuple[str, int]]:
    """Return the namespaces whose copies are complete, each with its number of rows."""
    found: Counter[tuple[str, int]] = Counter()
    for batch in batches(hub):
        ends = batch.filter(is_complete(batch))
        for key, value in zip(ends["key"].to_pylist(), ends["value"].to_pylist(), strict=True):
            found[key.decode(), msgspec.json.decode(value)["rows"]] += 1
    return found


def test_files_that_grow_rotate_and_appear_are_read_once_by_tasks_that_are_killed(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    megabytes = count("source megabytes", test=20, soak=2000)
    kills, seed = count("source kills", test=3, soak=10), random.randrange(2**32)
    chance = random.Random(seed)
    files = GrowingFiles(tmp_path / "in", megabytes << 20, chance)
    range_bytes = (megabytes << 20) // FILES // 4
    arguments = (tmp_path, files.pattern, range_bytes)
    tailrace.open(tmp_path / "hub", sync="none").close()
    tasks = [Child(read_until_killed, *arguments) for _ in range(TASKS)]
    copied = files.total
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        for number in range(kills):
            share = max(1, copied * number // (kills + 1))
            until(partial(has_read, hub, share), within_s=READ_S)
            files.change()
            victim = tasks.pop(chance.randrange(TASKS))
            if chance.random() < 0.3:
                stop(victim.pid)  # frozen, and counted as dead before it dies
            list(victim.kill())
            tasks.append(Child(read_until_killed, *arguments))
        lines = files.total + FILES
        until(partial(has_read, hub, lines), "lines are missing", within_s=READ_S)
        for task in tasks:
            list(task.kill())
        found, complete = found_lines(hub), completed(hub)
        letters = sum(hub.topic("lines.dead-letters").storage_topics[0].ends)
    wrong = sum(
        not np.array_equal(np.sort(found.get(file, np.array([]))), np.arange(lines))
        for file, lines in enumerate(files.lines)
    )
    record_evidence("sources", f"MB by {TASKS} tasks, {kills} kills", megabytes, [seed], wrong)
    assert wrong == 0, f"seed {seed}"
    assert letters == 0
    assert complete == {(f"f{n:03d}", lines): 1 for n, lines in enumerate(files.copied)}
