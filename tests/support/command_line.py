"""The command line, run in this process on the hub of one test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from tailrace.cli.root import root


class CommandLine(NamedTuple):
    """`tailrace` with the hub of one test."""

    hub: Path

    def run(
        self,
        *args: str,
        stdin: str | bytes = "",
        status: int = 0,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run a command, and check its exit status."""
        variables = {"TAILRACE_HUB": str(self.hub), **(env or {})}
        result = CliRunner().invoke(root, args, stdin, env=variables, prog_name="tailrace")
        assert result.exit_code == status, f"status {result.exit_code}: {result.output}"
        return result

    def json(self, *args: str, status: int = 0) -> Any:
        """Run a command with `-o json`, and return its parsed output."""
        return json.loads(self.run(*args, "-o", "json", status=status).stdout)

    def tail(self, *args: str) -> list[str]:
        """Return the lines that `tail --exit` prints."""
        return self.run("tail", *args, "--exit").stdout.splitlines()
