"""The pipeline ``lake`` of a TOML file: two rows into Parquet files, run by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

WITHIN_S = 300

_FILE = """
[pipeline]
name = "lake"
{spark}
[reader]
type = "file"
path = "in/*.jsonl"
[writer.files]
type = "parquet"
path = "out/"
"""


class LakeFile:
    """The file `lake.toml`, its two rows and its hub in a directory, where commands are run.

    `spark` has lines of the definition about Spark. Commands have the `environment`, by default
    that of the tests.
    """

    def __init__(
        self, directory: Path, environment: Mapping[str, str] = os.environ, spark: str = ""
    ) -> None:
        self.directory = directory
        self.output = directory / "output"
        """What a process of `start` has printed."""
        self._environment = environment
        (directory / "in").mkdir()
        (directory / "in" / "orders.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
        (directory / "lake.toml").write_text(_FILE.format(spark=spark))

    def run(
        self, *command: str, status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with more variables in its environment, and check its exit status."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def tailrace(
        self, *arguments: str, status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``tailrace`` with the hub of the pipeline."""
        return self.run(*_tailrace(*arguments), status=status, **variables)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start ``tailrace pipeline run``, in a process group of its own."""
        with self.output.open("wb") as output:
            return subprocess.Popen(
                _tailrace("pipeline", "run", "lake.toml", *options),
                cwd=self.directory,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def _tailrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", "--hub", "hub", *arguments]
