"""Pipelines over many rows: parked rows, and the rows of one run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tailrace
from tailrace import Pipeline, readers, writers
from tailrace import functions as fn
from tailrace.delivery.dead_letters.letter import POSITION, WRITER
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.pipelines.counting_reader import CountingReader

pytestmark = [pytest.mark.part("pipelines"), pytest.mark.timeout(1800)]


def test_seven_bad_rows_among_many_are_parked_and_all_others_delivered_once(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    rows = count("parked rows", test=20_000, soak=100_000)
    bad = {rows * part // 7 for part in range(7)}
    with sqlite3.connect(tmp_path / "sink.db") as database:
        refused = ", ".join(map(str, sorted(bad)))
        database.execute(f"CREATE TABLE numbers(n INTEGER CHECK (n NOT IN ({refused})))")
    lake = Pipeline("lake", CountingReader(rows))
    url = f"sqlite:///{tmp_path / 'sink.db'}"
    lake.write("db", writers.sql(url), on_error="park", engine="direct")
    with tailrace.open(tmp_path / "hub") as hub:
        lake.run(hub, once=True)
        dead = hub.topic("lake.dead-letters")
        where = tailrace.Partition("lake.dead-letters", 0, 0)
        letters = [m for batch in dead.batches(0, 0) for m in dead.messages(where, batch)]
    with sqlite3.connect(tmp_path / "sink.db") as database:
        found = [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n")]
    wrong = len(set(range(rows)) - bad ^ set(found)) + len(found) - len(set(found))
    record_evidence("pipelines", "rows with 7 bad ones, parked", rows, [], wrong)
    assert found == sorted(set(range(rows)) - bad)
    assert {letter.value["n"] for letter in letters} == bad
    assert len(letters) == 7
    assert {letter.headers[WRITER] for letter in letters} == {b"lake/db"}
    positions = {letter.headers[POSITION] for letter in letters}
    assert positions == {f"lake.commits/0.0@{n}".encode() for n in bad}


def test_one_run_handles_all_and_only_the_rows_present_at_its_start(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    rows = count("rows at once", test=100_003, soak=1_000_003)
    source = tmp_path / "numbers.jsonl"
    source.write_text("".join(f'{{"n":{n}}}\n' for n in range(rows)))
    late = [f'{{"n":{rows + number}}}' for number in range(10)]

    def meanwhile(document: dict[str, int]) -> dict[str, int]:
        if late:
            with source.open("a") as file:
                file.write(late.pop() + "\n")
        return document

    lake = Pipeline("lake", readers.file(str(source)))
    lake.write(
        "out",
        writers.file(str(tmp_path / "out")),
        functions=[fn.python(meanwhile)],
        engine="direct",
        batch_rows=7_001,
    )
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        lake.run(hub, once=True)
        found = numbers_in(tmp_path / "out")
        record_evidence("pipelines", "rows of one run", rows, [], abs(len(found) - rows))
        assert not late
        assert found == list(range(rows))
        lake.run(hub, once=True)
        assert numbers_in(tmp_path / "out") == list(range(rows + 10))


def numbers_in(directory: Path) -> list[int]:
    """Return the numbers in all published files."""
    files = [file for file in directory.rglob("*.jsonl") if "_tailrace" not in file.parts]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(int(line[5:-1]) for line in lines)
