"""A stream into a topic on a cluster whose parts are killed: each row is stored once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import tailrace
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster, running_cluster
from tests.support.spark_stream_to_topic import BATCH_ROWS, TOPIC, stored

pytestmark = [pytest.mark.soak, pytest.mark.part("spark"), pytest.mark.timeout(7200)]

WORKERS = 2
STEP_S = 600
"""The time in which the stream must store another batch, also after a kill."""


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    try:
        with running_cluster(WORKERS) as running:
            yield running
    except Unavailable as error:
        pytest.skip(str(error))


class Stream:
    """The program under test and the cluster it runs on. No executor sees the hub."""

    def __init__(self, cluster: SparkCluster, hub: tailrace.Hub, directory: Path, rows: int):
        self.cluster = cluster
        self.hub = hub
        self._directory = directory
        self._command = [sys.executable, "-m", "tests.support.spark_stream_to_topic", cluster.url]
        self._command += [str(directory), str(rows)]
        self._hidden = [ExitStack() for _ in range(WORKERS)]
        for worker in range(WORKERS):
            self._hide(worker)
        self.start()

    def start(self) -> None:
        """Start the driver."""
        with (self._directory / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                self._command, env=self.cluster.environment, stdout=log, stderr=log
            )

    def await_rows(self, more: int) -> None:
        """Wait until so many more rows are stored; a driver that ended is started again."""
        wanted, deadline = stored(self.hub) + more, time.monotonic() + STEP_S
        while stored(self.hub) < wanted:
            assert time.monotonic() < deadline, self.log()
            if self._driver.poll() is not None:
                self.start()
            time.sleep(0.05)

    def kill(self, victim: str, chance: random.Random) -> None:
        """Kill one part; the cluster or this program starts it again."""
        worker = chance.randrange(WORKERS)
        if victim == "driver":
            self._driver.kill()
            self._driver.wait()
            self.start()
        elif victim == "worker":
            self.cluster.stop_worker(worker, signal.SIGKILL)
            self._hidden[worker].close()
            self.cluster.restart_worker(worker)
            self._hide(worker)
        else:
            found = self.cluster.executor_pids if victim == "executor" else self.cluster.python_pids
            for pid in found(worker)[-1:] or found()[-1:]:
                os.kill(pid, signal.SIGKILL)

    def to_the_end(self) -> None:
        """Wait until the driver has stored all rows; one that ended early is started again."""
        (self._directory / "enough").touch()
        deadline = time.monotonic() + STEP_S
        while self._driver.wait(STEP_S) != 0:
            assert time.monotonic() < deadline, self.log()
            self.start()

    def close(self) -> None:
        """End the driver."""
        self._driver.kill()
        self._driver.wait()
        for each in self._hidden:
            each.close()

    def log(self) -> str:
        """The end of the driver's output."""
        return (self._directory / "driver.log").read_text(errors="replace")[-4000:]

    def _hide(self, worker: int) -> None:
        hidden = self.cluster.hidden(Path(self.hub.backend.name), worker)
        self._hidden[worker].enter_context(hidden)


def wrong_rows(hub: tailrace.Hub, checkpoint: Path) -> int:
    """The number of rows that are missing or there more than once. All batches that the checkpoint
    has as done count, and one that was stored just before the end."""
    found: Counter[int] = Counter()
    for number in range(hub.topic(TOPIC).storage_topics[0].partitions):
        for batch in hub.topic(TOPIC).batches(0, number):
            found.update(int(value.as_py()) for value in batch["value"])
    done = max(
        int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdecimal()
    )
    expected = Counter(range(max(max(found) + 1, (done + 1) * BATCH_ROWS)))
    assert len(expected) % BATCH_ROWS == 0
    return (found - expected).total() + (expected - found).total()


def test_each_row_is_stored_once_whatever_part_of_the_cluster_is_killed(
    cluster: SparkCluster, tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    kills, seed = count("kills of each", test=1, soak=10), random.randrange(2**32)
    rows = count("rows", test=80_000, soak=480_000)
    chance = random.Random(seed)
    victims = ["worker", "executor", "python", "driver"] * kills
    chance.shuffle(victims)
    with tailrace.open(tmp_path / "hub") as hub:
        hub.create_topic(TOPIC, bytes, partitions=4)
        stream = Stream(cluster, hub, tmp_path, rows)
        try:
            for victim in victims:
                stream.await_rows(BATCH_ROWS)
                time.sleep(chance.uniform(0, 1.0))
                stream.kill(victim, chance)
            stream.to_the_end()
        finally:
            stream.close()
        wrong = wrong_rows(hub, tmp_path / "checkpoint")
        assert stored(hub) >= rows
    staged = list((tmp_path / "staging").rglob("*.arrow"))
    record_evidence("spark", "kills under a stream into a topic", 4 * kills, [seed], wrong)
    assert wrong == 0, f"seed {seed}"
    assert len(staged) <= WORKERS, f"seed {seed}"
