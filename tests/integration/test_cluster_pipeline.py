"""Pipelines on a cluster whose executors share neither the hub nor directories with the driver."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import pytest

import tailrace
from tailrace.operations.pipeline.explain_writer import explain_writer
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterName
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.pipelines.four_sinks import RELEASED, seen
from tests.support.processes import kill_now
from tests.support.servers.shared import Unavailable
from tests.support.servers.spark_cluster import SparkCluster
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.part("spark"),
    pytest.mark.soak,
    pytest.mark.timeout(3600),
]

RUN_S = 600.0
WORKERS = (0, 1)


class ClusterRun:
    """The pipeline into some sinks, as a process that runs in its directory, by relative paths."""

    def __init__(
        self,
        cluster: SparkCluster,
        directory: Path,
        rows: int,
        sinks: Sequence[str],
        postgres_url: str = "-",
    ) -> None:
        self._cluster = cluster
        self._directory = directory
        self._rows = rows
        self._sinks = sinks
        self._postgres_url = postgres_url
        (directory / "parquet").mkdir()
        tailrace.open(directory / "hub").close()

    def start(self) -> subprocess.Popen[str]:
        """Start the driver."""
        program = [sys.executable, "-m", "tests.support.pipelines.four_sinks", "."]
        arguments = [self._postgres_url, str(self._rows), "spark", self._cluster.url, *self._sinks]
        with self.errors.open("a") as errors:
            return subprocess.Popen(
                program + arguments,
                cwd=self._directory,
                env=self._cluster.environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def errors(self) -> Path:
        """The file with what drivers write to standard error."""
        return self._directory / "driver.log"

    def release(self, rows: int) -> None:
        """Let the reader read up to this number of rows. Before the first start, or after it."""
        (self._directory / RELEASED).write_text(str(rows))

    def delivered(self) -> int:
        """Return the number of records that all writers together have delivered."""
        with tailrace.open(self._directory / "hub") as hub:
            if "lake.commits" not in hub.topics():
                return 0
            total = 0
            for sink in self._sinks:
                view = hub.topic("lake.commits").view
                ledger = WriterLedger(hub.backend, WriterName("lake", sink), view)
                ledger.read()
                total += sum(progress.mark for progress in ledger.progress.values())
            return total

    def wrong(self) -> dict[str, int]:
        """Return the numbers of missing and repeated rows of each wrong sink."""
        expected = Counter((n, 2 * n) for n in range(self._rows))
        found = seen(self._directory, self._postgres_url, self._sinks)
        return {
            sink: (rows - expected).total() + (expected - rows).total()
            for sink, rows in found.items()
            if rows != expected
        }


class HiddenDirectory:
    """A directory that workers do not see, also after they were started again."""

    def __init__(self, cluster: SparkCluster, directory: Path, workers: Sequence[int]) -> None:
        self._cluster = cluster
        self._directory = directory
        self._hidden: dict[int, AbstractContextManager[None]] = {}
        for worker in workers:
            self.hide(worker)

    def hide(self, worker: int) -> None:
        """Hide the directory from a worker, which may be a new process."""
        self._show(worker)
        hidden = self._cluster.hidden(self._directory, worker)
        try:
            hidden.__enter__()
        except Unavailable as reason:
            self.close()
            pytest.skip(str(reason))
        self._hidden[worker] = hidden

    def files_of(self, worker: int) -> list[str]:
        """Return the files that the worker has in its own directory of that name."""
        own = Path(f"/proc/{self._cluster.worker_pid(worker)}/root{self._directory}")
        return [str(each) for each in own.rglob("*") if each.is_file()]

    def close(self) -> None:
        """Show the directory to all workers."""
        for worker in list(self._hidden):
            self._show(worker)

    def _show(self, worker: int) -> None:
        hidden = self._hidden.pop(worker, None)
        if hidden is not None:
            with suppress(Unavailable):  # The process that it was hidden from has ended.
                hidden.__exit__(None, None, None)


Hide = Callable[[Path, Sequence[int]], HiddenDirectory]


@pytest.fixture
def hide(spark_cluster: SparkCluster, tmp_path: Path) -> Iterator[Hide]:
    """Hide directories from workers until the test ends, and wait until no executor is left."""
    made: list[HiddenDirectory] = []

    def hide(directory: Path, workers: Sequence[int]) -> HiddenDirectory:
        made.append(HiddenDirectory(spark_cluster, directory, workers))
        return made[-1]

    yield hide
    for each in made:
        each.close()
    spark_cluster.await_idle()


def test_a_pipeline_needs_its_hub_and_the_directories_of_its_sinks_on_the_driver_only(
    spark_cluster: SparkCluster, hide: Hide, tmp_path: Path
) -> None:
    sinks = ("parquet", "sqlite", "topic")
    run = ClusterRun(spark_cluster, tmp_path, 20_000, sinks)
    hidden = hide(tmp_path, [1])
    process = run.start()
    output, _ = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, run.errors.read_text()[-4000:]
    assert json.loads(output) == {f"lake/{sink}": 20_000 for sink in sinks}
    assert run.wrong() == {}
    assert hidden.files_of(1) == []
    assert list(tmp_path.rglob(".tailrace-*")) == []
    with tailrace.open(tmp_path / "hub") as hub:
        for sink in sinks:
            facts = explain_writer(hub, f"lake/{sink}").facts
            notes = [fact.what for fact in facts if fact.name == "executors"]
            assert any(f"cannot read the hub {tmp_path / 'hub'}" in note for note in notes)
            assert any("does not share" in note for note in notes)


def test_an_executor_that_joins_without_the_directory_of_a_sink_writes_nothing_of_its_own(
    spark_cluster: SparkCluster, hide: Hide, tmp_path: Path
) -> None:
    rows = count("rows", test=60_000, soak=480_000)
    spark_cluster.stop_worker(1)
    spark_cluster.await_workers()
    run = ClusterRun(spark_cluster, tmp_path, rows, ["parquet"])
    process = run.start()
    try:
        until(lambda: run.delivered() > rows // 10, within_s=RUN_S)
        spark_cluster.restart_worker(1)
        hidden = hide(tmp_path, [1])
        output, _ = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    assert process.returncode == 0, run.errors.read_text()[-4000:]
    assert json.loads(output) == {"lake/parquet": rows}
    assert run.wrong() == {}
    assert [each for each in hidden.files_of(1) if "/parquet/" in each] == []


class Killer:
    """Kills parts of a cluster, and the driver, while a pipeline runs."""

    def __init__(self, cluster: SparkCluster, run: ClusterRun, hidden: HiddenDirectory) -> None:
        self._cluster = cluster
        self._run = run
        self._hidden = hidden
        self.process = run.start()

    def has_delivered(self, records: int) -> bool:
        """True if that many records are delivered, or the driver has ended."""
        return self._run.delivered() >= records or self.process.poll() is not None

    def kill(self, victim: str, chance: random.Random) -> None:
        """Kill a worker, an executor or a Python worker of either host, or the driver."""
        worker = chance.choice(WORKERS)
        if victim == "driver":
            self.process.kill()
            self.process.communicate()
            self.process = self._run.start()
        elif victim == "worker":
            self._cluster.stop_worker(worker, signal.SIGKILL)
            self._cluster.restart_worker(worker)
            self._hidden.hide(worker)
        else:
            until(lambda: self._pids(victim, worker) or self.process.poll() is not None)
            found = self._pids(victim, worker)
            for pid in chance.sample(found, min(1, len(found))):
                kill_now(pid)

    def _pids(self, victim: str, worker: int) -> list[int]:
        if victim == "executor":
            return self._cluster.executor_pids(worker)
        return self._cluster.python_pids(worker)


def test_each_sink_has_each_row_once_whatever_is_killed_on_a_cluster_without_the_hub(
    spark_cluster: SparkCluster,
    hide: Hide,
    tmp_path: Path,
    postgres_url: str,
    record_evidence: RecordEvidence,
) -> None:
    rows = count("rows", test=60_000, soak=480_000)
    kills, seed = count("cluster kills", test=1, soak=10), random.randrange(2**32)
    chance = random.Random(seed)
    sinks = ("parquet", "postgres", "topic")
    run = ClusterRun(spark_cluster, tmp_path, rows, sinks, postgres_url)
    run.release(0)
    killer = Killer(spark_cluster, run, hide(tmp_path / "hub", WORKERS))
    victims = ["worker", "executor", "python", "driver"] * kills
    chance.shuffle(victims)
    killed = Counter[str]()
    try:
        for number, victim in enumerate(victims):
            # A part of the rows for each kill: batches are large after a restart of the driver.
            run.release(rows * (number + 1) // (len(victims) + 1))
            share = len(sinks) * rows * number // (len(victims) + 1)
            until(partial(killer.has_delivered, share + 1), within_s=RUN_S)
            time.sleep(chance.uniform(0, 0.5))  # Anywhere within a batch.
            killer.kill(victim, chance)
            killed[victim] += 1
        run.release(rows)
        killer.process.communicate(timeout=RUN_S)
    finally:
        killer.process.kill()
    assert killer.process.returncode == 0, run.errors.read_text()[-4000:]
    wrong = run.wrong()
    made = ", ".join(f"{number} of a {victim}" for victim, number in sorted(killed.items()))
    record_evidence("spark", f"kills on a cluster: {made}", killed.total(), [seed], len(wrong))
    assert wrong == {}, f"seed {seed}"
    assert killed.total() == len(victims)
