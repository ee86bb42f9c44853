"""A command line over a hub with orders."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A topic of one partition with 10 messages, of which the group billing has acknowledged 4."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        orders = hub.create_topic("orders", int, partitions=1)
        orders.push_many([(f"c{number % 3}", number) for number in range(10)])
    cli.run("tail", "orders", "--group", "billing", "-n", "4")
    return cli
