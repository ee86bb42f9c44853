"""A pipeline into four sinks whose driver is killed: each sink has each row once."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import TableKey, Transaction
from tailrace.pipeline.books import Books, WriterName
from tests.evidence import RecordEvidence
from tests.pipelines.four_sinks import SINKS, seen
from tests.scale import count

pytestmark = [pytest.mark.part("pipelines"), pytest.mark.timeout(3600)]

RUN_S = 300


class Driver:
    """The program under test, started again and again over the same directory."""

    def __init__(self, directory: Path, postgres_url: str, rows: int, engine: str) -> None:
        self.directory = directory
        self.postgres_url = postgres_url
        self.rows = rows
        self._command = [sys.executable, "-m", "tests.pipelines.four_sinks", str(directory)]
        self._command += [postgres_url, str(rows), engine]

    def killed_after(self, seconds: float) -> bool:
        """Start it and kill it; False when it was done by then."""
        process = subprocess.Popen(self._command, stderr=subprocess.PIPE)
        try:
            process.communicate(timeout=seconds)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True

    def killed_at(self, fraction: float) -> None:
        """Start it and kill it once a sink has that part of the rows."""
        process = subprocess.Popen(self._command)
        try:
            deadline = time.monotonic() + RUN_S
            while self.delivered("sqlite") < fraction * self.rows:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()

    def to_the_end(self) -> None:
        """Start it and let it finish."""
        done = subprocess.run(
            self._command, stderr=subprocess.PIPE, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def delivered(self, writer: str) -> int:
        """How many records the hub says a writer has delivered."""
        with tailrace.open(self.directory / "hub") as hub:
            if "lake.commits" not in hub.topics():
                return 0
            books = Books(hub.backend, WriterName("lake", writer), hub.topic("lake.commits").view)
            books.read()
            return sum(progress.mark for progress in books.progress.values())

    def wrong(self) -> dict[str, int]:
        """For each sink that is not right, how many rows are missing or there more than once."""
        expected = Counter((n, 2 * n) for n in range(self.rows))
        return {
            sink: (rows - expected).total() + (expected - rows).total()
            for sink, rows in seen(self.directory, self.postgres_url).items()
            if rows != expected
        }


def killed_at_random(driver: Driver, kills: int, seed: int, longest_s: float) -> int:
    """Kill it so often, at random instants, then let it finish; how often it was at work."""
    chance = random.Random(seed)
    killed = sum(driver.killed_after(chance.uniform(0.3, longest_s)) for _ in range(kills))
    driver.to_the_end()
    return killed


def test_each_sink_has_each_row_once_however_often_the_driver_is_killed(
    tmp_path: Path, postgres_url: str, record_evidence: RecordEvidence
) -> None:
    rows = count("rows", test=20_000, soak=200_000)
    kills, seed = count("kills", test=5, soak=30), random.randrange(2**32)
    driver = Driver(tmp_path, postgres_url, rows, "direct")
    killed_at_random(driver, kills, seed, 0.3 + rows / 10_000)
    wrong = driver.wrong()
    record_evidence("pipelines", "kills of a direct driver", kills, [seed], sum(wrong.values()))
    assert wrong == {}, f"seed {seed}"


@pytest.mark.xdist_group("spark")
def test_each_sink_has_each_row_once_however_often_a_driver_of_spark_is_killed(
    tmp_path: Path, postgres_url: str, record_evidence: RecordEvidence
) -> None:
    rows = count("rows", test=20_000, soak=200_000)
    kills, seed = count("spark kills", test=1, soak=30), random.randrange(2**32)
    driver = Driver(tmp_path, postgres_url, rows, "spark")
    killed_at_random(driver, kills, seed, count("seconds", test=15, soak=40))
    wrong = driver.wrong()
    record_evidence("pipelines", "kills of a Spark driver", kills, [seed], sum(wrong.values()))
    assert wrong == {}, f"seed {seed}"


@pytest.mark.parametrize("engine", ["direct", pytest.param("spark", marks=pytest.mark.soak)])
def test_with_checkpoint_and_ledger_deleted_in_the_middle_nothing_is_lost_or_twice(
    tmp_path: Path, postgres_url: str, engine: str
) -> None:
    driver = Driver(tmp_path, postgres_url, count("rows", test=20_000, soak=200_000), engine)
    driver.killed_at(0.6)
    shutil.rmtree(tmp_path / "hub" / "hub.spark", ignore_errors=True)
    with tailrace.open(tmp_path / "hub") as hub:
        for sink in SINKS:
            table = f"ledger/lake/{sink}"
            entries = hub.backend.table.scan(table)
            hub.backend.commit(
                Transaction(table={TableKey(table, key): None for key, _ in entries})
            )
    driver.to_the_end()
    assert driver.wrong() == {}
