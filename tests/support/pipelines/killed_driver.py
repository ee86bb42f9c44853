"""The pipeline into four sinks as a process that tests kill and start again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tailrace
from tailrace.pipeline.writer_status import WriterStatus
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterName, stored_state
from tests.support.pipelines.four_sinks import seen

RUN_S = 300


class Driver:
    """The program under test, started repeatedly over the same directory."""

    def __init__(self, directory: Path, postgres_url: str, rows: int, engine: str) -> None:
        self.directory = directory
        self.postgres_url = postgres_url
        self.rows = rows
        self._command = [sys.executable, "-m", "tests.support.pipelines.four_sinks", str(directory)]
        self._command += [postgres_url, str(rows), engine]

    def start(self) -> subprocess.Popen[bytes]:
        """Start the program."""
        return subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def killed_after(self, seconds: float) -> bool:
        """Start the program and kill it. False if it had finished before."""
        process = subprocess.Popen(self._command, stderr=subprocess.PIPE)
        try:
            process.communicate(timeout=seconds)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True

    def killed_at(self, fraction: float) -> None:
        """Start the program, and kill it once a sink has a share of the rows."""
        process = self.start()
        try:
            self.await_share(process, "sqlite", fraction)
        finally:
            process.kill()
            process.wait()

    def await_share(self, process: subprocess.Popen[bytes], writer: str, fraction: float) -> None:
        """Wait until a writer of the running program has delivered a share of the rows."""
        deadline = time.monotonic() + RUN_S
        ended = False
        while self.delivered(writer) < fraction * self.rows:
            assert not ended, "the program ended before"
            assert time.monotonic() < deadline
            time.sleep(0.02)
            ended = process.poll() is not None

    def await_waiting(
        self, process: subprocess.Popen[bytes], writer: str, since_ms: int = 0
    ) -> int:
        """Wait until a writer of the running program waits for its sink, by its ledger.

        The wait began after `since_ms`, so it is not one that a killed program left in the ledger.
        Returns when it began, in milliseconds.
        """
        deadline = time.monotonic() + RUN_S
        while True:
            assert process.poll() is None, "the program ended, and its sink is down"
            with tailrace.open(self.directory / "hub") as hub:
                state = stored_state(hub.backend, WriterName("lake", writer))
            if state.state is WriterStatus.WAITING and state.since_ms > since_ms:
                return state.since_ms
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def to_the_end(self) -> None:
        """Start the program, and let it finish."""
        done = subprocess.run(
            self._command, stderr=subprocess.PIPE, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def delivered(self, writer: str) -> int:
        """Return the number of records that a writer has delivered, by its ledger."""
        with tailrace.open(self.directory / "hub") as hub:
            if "lake.commits" not in hub.topics():
                return 0
            ledger = WriterLedger(
                hub.backend, WriterName("lake", writer), hub.topic("lake.commits").view
            )
            ledger.read()
            return sum(progress.mark for progress in ledger.progress.values())

    def wrong(self) -> dict[str, int]:
        """Return the numbers of missing and repeated rows of each wrong sink."""
        expected = Counter((n, 2 * n) for n in range(self.rows))
        return {
            sink: (rows - expected).total() + (expected - rows).total()
            for sink, rows in seen(self.directory, self.postgres_url).items()
            if rows != expected
        }
