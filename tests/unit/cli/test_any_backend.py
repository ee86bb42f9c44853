"""Every command, on a backend that does no more than the contract.

Each works, or ends with `NotSupported`, which names the operation and the backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from tailrace.cli.context import CommandContext, ExitStatus
from tailrace.cli.root import root
from tailrace.hub.hub import Hub
from tailrace.operations.dead_letters.listing import list_letters
from tailrace.source.source import Source
from tailrace.testing import MemoryBackend
from tests.support.pipelines.lake import LOG, Lake

COPY: Final = """
[pipeline]
name = "copy"
engine = "{engine}"

[reader]
type = "file"
path = "in/*.jsonl"

[writer.crm]
type = "sql"
url = "sqlite:///crm.db"
"""

SHOP: Final = """
[source]
name = "shop"

[reader]
type = "file"
path = "in/*.jsonl"
"""

WORKS: Final[dict[str, str]] = {
    "topic create": "users",
    "topic list": "",
    "topic show": "orders",
    "topic route": "orders c7",
    "topic scale": "orders 4 --yes",
    "topic add-storage": "orders 4 --yes",
    "topic switch": "orders --yes",
    "topic trim": "orders --before 0 --yes",
    "topic delete": "orders --yes",
    "push": "orders 1",
    "tail": "orders --group billing -n 2",
    "status": "",
    "lag": "billing",
    "explain": "lake/crm",
    "group list": "",
    "group show": "billing",
    "group seek": "billing earliest --yes",
    "group skip": "billing orders/0.0@8 --reason test --yes",
    "group history": "billing",
    "group delete": "billing --yes",
    "queue create": "emails",
    "queue list": "",
    "queue stats": "jobs --shards",
    "queue pause": "jobs --drain --reason test",
    "queue play": "jobs",
    "queue rebalance": "jobs",
    "queue replay": "jobs --from 2026-01-31T08:00Z --to 2026-01-31T09:00Z",
    "queue delete": "jobs --yes",
    "subscription create": "crm --topic orders",
    "subscription list": "",
    "subscription show": "mailer",
    "subscription history": "mailer",
    "subscription delete": "mailer --yes",
    "subscription update": "mailer --attempts 3",
    "subscription pause": "mailer --reason test",
    "subscription resume": "mailer",
    "subscription reset": "mailer --to start --yes",
    "subscription reshard": "mailer 1 --yes",
    "source test": "shop.toml",
    "source run": "shop.toml --once",
    "source status": "shop",
    "source history": "shop",
    "source forget": "shop --yes",
    "pipeline init": "file sql lake.toml",
    "pipeline test": "copy.toml",
    "pipeline run": "copy.toml --once",
    "pipeline status": "",
    "pipeline log": "lake",
    "pipeline retry": "lake/crm",
    "pipeline ack": f"lake/crm {LOG}@14 --reason test",
    "pipeline rewind": f"lake/crm {LOG}@1 --yes",
    "pipeline forget": "lake/crm --yes",
    "dlq list": "lake/crm",
    "dlq show": "lake/crm LETTER",
    "dlq redeliver": "lake/crm --all",
    "dlq discard": "lake/crm LETTER --reason test",
    "audit": "",
    "reader list": "",
    "reader show": "file",
    "writer list": "",
    "writer show": "sql",
    "hub info": "",
    "hub accept-gaps": "",
    "config show": "",
    "completion": "bash",
    "version": "",
}

NOT_SUPPORTED: Final[dict[str, tuple[str, str]]] = {
    "segment list": ("", "list segments"),
    "segment show": ("orders/0.0", "show a segment"),
    "segment verify": ("", "verify segments"),
    "segment compact": ("--yes", "compact segments"),
}

UNTIL_STOPPED: Final = {"run", "subscription run"}
"""Commands that run until they are stopped. Their own tests run them."""

OWN_HUB: Final = {"bench", "demo"}
"""Commands that make a hub of their own in a directory."""

FAILED: Final = {"pipeline retry", "pipeline ack"}
"""Commands for a writer that has failed."""


class KeptBackend(MemoryBackend):
    """A backend that stays open when a command closes its hub."""

    def close(self) -> None:
        """Stay open."""


class Commands:
    """The command line over one backend in memory."""

    def __init__(self) -> None:
        self.backend = KeptBackend("memory")

    def hub(self) -> Hub:
        return Hub.from_backend(self.backend)

    def run(self, *args: str) -> Result:
        context = CommandContext(opener=lambda _settings: self.hub())
        return CliRunner().invoke(root, args, obj=context, prog_name="tailrace")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Over a topic, a group, a subscription, a queue and a source, beside files of pipelines."""
    monkeypatch.chdir(tmp_path)
    made = Commands()
    orders = made.hub().create_topic("orders", partitions=1)
    orders.push_many([(f"c{number % 3}", number) for number in range(10)])
    with orders.tail(group="billing", limit=4) as consumer:
        assert len(list(consumer)) == 4
    made.hub().create_subscription("mailer", topic="orders")
    made.hub().queue("jobs", shards=2).push(1, key="c7")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.jsonl").write_text('{"id":1}\n{"id":2}\n')
    (tmp_path / "copy.toml").write_text(COPY.format(engine="direct"))
    (tmp_path / "shop.toml").write_text(SHOP)
    Source.from_file("shop.toml").run(made.hub(), once=True)
    return made


def _all_commands(command: click.Command, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _all_commands(found, *path, name)


def test_every_command_is_listed_here() -> None:
    listed = [*WORKS, *NOT_SUPPORTED, *UNTIL_STOPPED, *OWN_HUB]
    assert sorted(listed) == sorted(_all_commands(root))


@pytest.mark.parametrize("command", WORKS)
def test_a_command_works_on_a_backend_in_memory(
    command: str, commands: Commands, tmp_path: Path
) -> None:
    lake = Lake(commands.hub(), tmp_path)
    if command in FAILED:
        lake.fail_at_14()
    else:
        lake.options["on_error"] = "park"
        lake.refuse(3)
        assert lake.run()
    arguments = WORKS[command]
    if "LETTER" in arguments:
        (letter,) = list_letters(commands.hub(), "lake/crm", 10)
        arguments = arguments.replace("LETTER", letter.position)
    found = commands.run(*command.split(), *arguments.split())
    wanted = ExitStatus.NOT_WELL if command == "status" else ExitStatus.DONE
    assert found.exit_code == wanted, found.output


@pytest.mark.parametrize("command", NOT_SUPPORTED)
def test_a_command_that_a_backend_cannot_do_names_both(command: str, commands: Commands) -> None:
    arguments, operation = NOT_SUPPORTED[command]
    found = commands.run(*command.split(), *arguments.split())
    assert found.exit_code == ExitStatus.ERROR
    assert found.stderr.startswith(f"NotSupported: hub 'memory' cannot {operation}: ")


def test_writers_on_spark_are_refused_before_spark_starts(commands: Commands) -> None:
    Path("copy.toml").write_text(COPY.format(engine="spark"))
    found = commands.run("pipeline", "run", "copy.toml", "--once")
    assert found.exit_code == ExitStatus.ERROR
    assert "NotSupported: hub 'memory' cannot run writers on Spark: " in found.stderr


def test_the_contents_of_a_hub_in_memory_are_shown() -> None:
    commands = Commands()
    commands.hub().create_topic("orders", partitions=1).push_many([("c7", 1), ("c8", 2)])
    assert commands.run("status").stdout.startswith("well: 1 topic, 2 messages, ")
    shown = commands.run("hub", "info").stdout
    assert shown.splitlines() == [
        "hub                memory",
        "topics             1",
        "messages           2 (64 bytes)",
        "internal messages  0 (0 bytes)",
    ]
    assert "disk" not in shown
