"""Topics of pipelines: users cannot create them or push to them, and plans name the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.hub.hub import Hub
from tailrace.topic.composite import creation, first_definition
from tailrace.topic.router import RouterKind
from tests.support.command_line import CommandLine
from tests.support.pipelines.lake import Lake


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The hub of a pipeline lake, which has delivered 16 rows."""
    cli = CommandLine(tmp_path / "hub")
    with tailrace.open(cli.hub, sync="none") as hub:
        assert Lake(hub, tmp_path).run()
    return cli


@pytest.mark.parametrize("name", ["sales.commits", "sales.dead-letters"])
def test_a_topic_of_a_reserved_name_is_refused_with_its_pipeline(
    cli: CommandLine, name: str
) -> None:
    error = cli.run("topic", "create", name, status=2).stderr
    assert "names that do not end in .commits or .dead-letters" in error
    assert "pipeline 'sales' creates its own topics when it runs" in error
    with tailrace.open(cli.hub) as hub, pytest.raises(tailrace.InvalidName):
        hub.create_topic(name)
    unknown = cli.run("topic", "show", name, status=1).stderr
    assert "pipeline 'sales' creates it when it runs: tailrace pipeline run FILE" in unknown
    assert "topic create" not in unknown


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("lake.commits", "is the commit log of pipeline lake: only its reader appends"),
        ("lake.dead-letters", "has the dead letters of pipeline lake"),
        ("tailrace.audit", "is an internal topic of Tailrace"),
    ],
)
def test_a_push_to_a_topic_of_a_pipeline_is_refused(
    cli: CommandLine, name: str, reason: str
) -> None:
    error = cli.run("push", name, '{"n": 1}', status=2).stderr
    assert f"{name} {reason}" in error
    assert "push to a topic of your own" in error


def test_a_topic_of_a_reserved_name_that_a_user_created_before_keeps_working(
    cli: CommandLine,
) -> None:
    with tailrace.open(cli.hub) as hub:
        _create_before(hub, "git.commits")
        hub.create_topic("git.commits", partitions=1, exist_ok=True).push({"n": 1})
    cli.run("push", "git.commits", '{"n": 2}')
    assert len(cli.tail("git.commits")) == 2


def _create_before(hub: Hub, name: str) -> None:
    definition = first_definition(
        partitions=1,
        router=RouterKind.SHARD_CONSISTENT,
        content_type="application/json",
        any_count=False,
        created_ms=0,
        identity="0",
    )
    hub.backend.store.commit(creation(name, definition))


def test_the_plan_of_a_scaling_names_the_pipeline_of_the_topic(cli: CommandLine) -> None:
    plan = cli.run("topic", "scale", "lake.commits", "4", "--dry-run").stdout
    assert "pipeline lake  its commit log; rows of one identity or namespace keep their" in plan
    assert "pipeline lake  its dead letters" in (
        cli.run("topic", "scale", "lake.dead-letters", "4", "--dry-run").stdout
    )


def test_the_plan_of_a_scaling_says_what_is_stored_and_what_is_unread(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "--partitions", "1")
    cli.run("push", "orders", *map(str, range(10)))
    cli.run("tail", "orders", "--group", "billing", "-n", "4")
    cli.tail("orders", "--group", "mail")
    plan = cli.run("topic", "scale", "orders", "4", "--dry-run").stdout.splitlines()
    assert plan == [
        "orders 1 -> 4 partitions: partition p is followed by 4p, 4p+1, 4p+2, 4p+3",
        "  shards         keys change their shard if there is more than one shard",
        "  stored         storage 0 keeps up to 10 messages; consumers finish it before storage 1",
        "  group billing  has 6 messages of the topic unread",
        "  undo           none; scaling back adds storage 2",
    ]


def test_the_plan_to_delete_a_commit_log_says_that_nothing_is_read_again(cli: CommandLine) -> None:
    plan = cli.run("topic", "delete", "lake.commits", "--dry-run").stdout
    assert "earlier rows are not read again" in plan
