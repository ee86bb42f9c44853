"""`tailrace topic`: creating, showing and changing topics, with confirmation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "hub")


def test_a_created_topic_is_listed(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "--partitions", "6")
    (topic,) = cli.json("topic", "list")
    assert topic["name"] == "orders"
    assert topic["partitions"] == 6
    assert "orders" in cli.run("topic", "list").stdout


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [("json", "application/json"), ("text", "text/plain"), ("bytes", "application/octet-stream")],
)
def test_the_type_decides_the_content_type(cli: CommandLine, kind: str, content_type: str) -> None:
    created = cli.json("topic", "create", "orders", "--type", kind)
    assert created["content_type"].startswith(content_type)


def test_a_topic_shows_what_it_is_ordered_by(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "--order-by", "customer.id")
    cli.run("topic", "create", "orders", "--order-by", "customer.id", "--exist-ok")
    cli.run("topic", "create", "notes")
    assert cli.json("topic", "show", "orders")["order_by"] == "customer.id"
    assert "ordered by    customer.id" in cli.run("topic", "show", "orders").stdout
    assert "ordered by    key" in cli.run("topic", "show", "notes").stdout
    error = cli.run("topic", "create", "orders", "--exist-ok", status=1).stderr
    assert "it is ordered by customer.id, not by key" in error


def test_creating_twice_is_an_error_without_exist_ok(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    assert "TopicExists" in cli.run("topic", "create", "orders", status=1).stderr
    cli.run("topic", "create", "orders", "--exist-ok")


def test_a_count_that_is_not_valid_is_a_usage_error_that_lists_the_valid_ones(
    cli: CommandLine,
) -> None:
    error = cli.run("topic", "create", "orders", "-p", "5", status=2).stderr
    assert error.startswith("InvalidValue: partitions is 5 · valid: 1, 2, 3 or a multiple")
    cli.run("topic", "create", "orders", "-p", "5", "--any-count")


@pytest.mark.parametrize(
    "asked", [("orders", "-p", "5"), ("a b",), ("tailrace.mine",), ("orders", "--order-by", "a..b")]
)
def test_a_topic_that_is_refused_makes_no_hub(cli: CommandLine, asked: tuple[str, ...]) -> None:
    cli.run("topic", "create", *asked, status=2)
    assert not cli.hub.exists()


def test_a_name_that_is_not_valid_is_a_usage_error(cli: CommandLine) -> None:
    assert "InvalidName" in cli.run("topic", "create", "a b", status=2).stderr


def test_an_unknown_topic_is_named_with_the_nearest_known_one(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    error = cli.run("topic", "show", "order", status=1).stderr
    assert error.startswith("UnknownTopic: no topic 'order'")
    assert "did you mean 'orders'?" in error


def test_showing_a_topic_never_creates_it(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "show", "other", status=1, env={"TAILRACE_HUB__AUTO_CREATE": "true"})
    assert [topic["name"] for topic in cli.json("topic", "list")] == ["orders"]


def test_a_topic_shows_its_storage_topics_and_partitions(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("push", "orders", "1", "2", "3", "--key", "c7")
    cli.run("topic", "scale", "orders", "12", "--yes")
    topic = cli.json("topic", "show", "orders")
    first, second = topic["storage"]
    assert (first["sealed"], first["takes_pushes"], first["messages"]) == (True, False, 3)
    assert (second["sealed"], second["takes_pushes"], second["k"]) == (False, True, 3)
    assert second["holds"][7]["follows"] == ["orders/0.2"]
    shown = cli.run("topic", "show", "orders", "--partitions").stdout
    assert "current" in shown
    assert "orders/1.11" in shown


def test_a_key_goes_where_its_route_says(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "-p", "12")
    routes = cli.json("topic", "route", "orders", "c7", "c8")
    cli.run("push", "orders", "1", "--key", "c8")
    assert [route["key"] for route in routes] == ["c7", "c8"]
    assert cli.tail("orders", "-f", "%p") == [routes[1]["partition"]]


CHANGES = [
    ("topic", "scale", "orders", "12"),
    ("topic", "add-storage", "orders", "8"),
    ("topic", "switch", "orders"),
    ("topic", "delete", "orders"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1])
def test_a_dry_run_prints_the_plan_and_changes_nothing(
    cli: CommandLine, change: tuple[str, ...]
) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "add-storage", "orders", "4", "--yes")
    before = cli.json("topic", "show", "orders")
    assert cli.run(*change, "--dry-run").stdout.startswith("orders")
    assert cli.json(*change, "--dry-run")["changes"]
    assert cli.json("topic", "show", "orders") == before


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1])
def test_without_a_terminal_to_ask_on_a_change_needs_yes(
    cli: CommandLine, change: tuple[str, ...]
) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "add-storage", "orders", "4", "--yes")
    before = cli.json("topic", "show", "orders")
    assert "add --yes" in cli.run(*change, status=2).stderr
    assert cli.json("topic", "show", "orders") == before
    assert cli.json(*change, "--yes")["changes"]


def test_scaling_to_the_same_count_has_nothing_to_do(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    assert "nothing to do" in cli.run("topic", "scale", "orders", "4").stdout
    assert cli.json("topic", "list")[0]["storage_topics"] == 1


def test_added_storage_takes_pushes_only_after_the_switch(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "add-storage", "orders", "8", "--yes")
    cli.run("push", "orders", "1")
    cli.run("topic", "switch", "orders", "--yes")
    cli.run("push", "orders", "2")
    held = [storage["messages"] for storage in cli.json("topic", "show", "orders")["storage"]]
    assert held == [1, 1]


def test_a_switch_at_the_last_storage_topic_names_the_command_to_run_first(
    cli: CommandLine,
) -> None:
    cli.run("topic", "create", "orders")
    assert "tailrace topic add-storage orders" in cli.run("topic", "switch", "orders").stdout


def test_a_deleted_topic_is_no_longer_listed(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("push", "orders", "1")
    plan = cli.run("topic", "delete", "orders", "--yes").stdout
    assert "1 message" in plan
    assert [topic["name"] for topic in cli.json("topic", "list")] == ["tailrace.audit"]


AUDITED = [
    (("topic", "scale", "orders", "12"), "scaled to 12 partitions"),
    (("topic", "add-storage", "orders", "8"), "added storage 2 with 8 partitions"),
    (("topic", "switch", "orders"), "switched pushes to storage 1"),
    (("topic", "delete", "orders"), "deleted with 1 message"),
]


@pytest.mark.parametrize(("change", "done"), AUDITED, ids=lambda change: change[1])
def test_a_change_of_a_topic_is_audited_with_the_shape_before_and_after(
    cli: CommandLine, change: tuple[str, ...], done: str
) -> None:
    cli.run("topic", "create", "orders")
    cli.run("push", "orders", "1")
    cli.run("topic", "add-storage", "orders", "4", "--yes")
    cli.run(*change, "--dry-run")
    cli.run(*change, "--yes")
    (_, entry) = cli.json("audit", "--target", "orders")
    assert entry["command"] == " ".join(change[:2])
    assert entry["before"]["partitions"] == [4, 4]
    assert entry["before"]["pushes_to_storage"] == 0
    assert entry["after"]["done"] == done


def test_a_change_of_a_topic_that_does_nothing_is_not_audited(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders")
    cli.run("topic", "scale", "orders", "4", "--yes")
    cli.run("topic", "switch", "orders", "--yes")
    assert cli.json("audit") == []


def test_the_plan_of_a_deletion_names_the_groups_that_lag(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "-p", "1")
    cli.run("push", "orders", *map(str, range(10)))
    cli.run("tail", "orders", "--group", "billing", "-n", "4")
    cli.run("tail", "orders", "--group", "printing", "-n", "10")
    plan = cli.run("topic", "delete", "orders", "--dry-run").stdout.splitlines()
    assert plan[1] == "  group billing  has not acknowledged 6 messages, which will be lost"
    assert plan[2] == "  undo           none"


def test_the_oldest_storage_topics_are_trimmed_once_they_are_consumed(cli: CommandLine) -> None:
    cli.run("topic", "create", "orders", "-p", "1")
    cli.run("push", "orders", "1", "2", "--key", "c7")
    cli.run("tail", "orders", "--group", "billing", "--exit")
    cli.run("push", "orders", "3", "--key", "c7")
    cli.run("topic", "scale", "orders", "2", "--yes")
    refused = cli.run("topic", "trim", "orders", "--before", "1", "--yes", status=2).stderr
    assert "storage 0 of topic 'orders' is not finished: " in refused
    assert "billing has 1 message unread" in refused
    assert "--force" in refused
    plan = cli.run("topic", "trim", "orders", "--before", "1", "--force", "--dry-run").stdout
    assert "orders: delete storage 0 with 3 messages" in plan
    assert "group billing  loses 1 message unread" in plan
    assert [each["index"] for each in cli.json("topic", "show", "orders")["storage"]] == [0, 1]
    cli.run("tail", "orders", "--group", "billing", "--exit")
    cli.run("topic", "trim", "orders", "--before", "1", "--yes")
    shown = cli.json("topic", "show", "orders")
    assert ([each["index"] for each in shown["storage"]], shown["deleted"]) == ([1], [0])
    assert "storage 0, with all messages" in cli.run("topic", "show", "orders").stdout
    assert "nothing to delete" in cli.run("topic", "trim", "orders", "--before", "1").stdout
    assert cli.tail("orders") == []
    assert "deleted" in cli.run("tail", "orders/0.0", "--exit", status=1).stderr
    [line] = [each for each in cli.json("audit") if each["command"] == "topic trim"]
    assert line["after"]["done"] == "deleted storage 0"
