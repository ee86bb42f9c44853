"""The command line over the backend of a shop, whose owners a test drives step by step."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from tailrace.cli.context import CommandContext
from tailrace.cli.root import root
from tailrace.hub.hub import Hub
from tests.support.shards import Shop


class KeptHub(Hub):
    """A hub that stays open when a command closes it."""

    def close(self) -> None:
        """Stay open."""


class ShopCommands(NamedTuple):
    """`tailrace` over the backend of a shop."""

    shop: Shop

    def run(self, *args: str, status: int = 0) -> Result:
        """Run a command, and check its exit status."""
        context = CommandContext(opener=lambda _: KeptHub.from_backend(self.shop.backend))
        result = CliRunner().invoke(root, args, obj=context, prog_name="tailrace")
        assert result.exit_code == status, f"status {result.exit_code}: {result.output}"
        return result

    def lines(self, *args: str, status: int = 0) -> list[str]:
        """Return the lines that a command prints."""
        return self.run(*args, status=status).stdout.splitlines()

    def json(self, *args: str, status: int = 0) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(self.run(*args, "-o", "json", status=status).stdout)
