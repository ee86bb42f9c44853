"""A pipeline into four sinks whose driver is killed: each sink has each row once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import TableKey, Transaction
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.pipelines.four_sinks import SINKS
from tests.support.pipelines.killed_driver import Driver

pytestmark = [pytest.mark.part("pipelines"), pytest.mark.timeout(3600)]


def killed_at_random(driver: Driver, kills: int, seed: int, longest_s: float) -> int:
    """Kill the program at random instants, then let it finish. Returns the effective kills."""
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
