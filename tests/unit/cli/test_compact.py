"""`tailrace segment compact`: consumed records are dropped, and blocking consumers are named."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.backend.contract import OffsetSpan, Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.message import Partition
from tailrace.topic.consumers import register, unregister
from tailrace.topic.ledger import Progress
from tailrace.topic.time_range import offsets_between
from tests.support.command_line import CommandLine
from tests.support.records import record

KEYS = "AABBAABBCACBAACBA"
LOG = Partition("commits", 0, 0)
TIME_MS = 1_495_000_000_000
"""The time of all records."""


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """A topic of two full segments and an active one, and another topic."""
    cli = CommandLine(tmp_path / "hub")
    for name in (LOG.topic, "orders"):
        cli.run("topic", "create", name, "-p", "1")
    segment_bytes = len(KEYS) * 31
    with closing(EmbeddedBackend.open(cli.hub, segment_bytes=segment_bytes)) as backend:
        for key in KEYS * 2 + "A":
            backend.commit(Transaction(((LOG, (record(b"x", key.encode()),)),)))
    return cli


def acknowledge(cli: CommandLine, consumer: str, mark: int) -> None:
    with tailrace.open(cli.hub) as hub:
        register(hub.backend.store, LOG.topic, consumer)
        progress = Progress(consumer, LOG)
        progress.ack(0, mark)
        hub.backend.commit(Transaction(table=progress.writes()))


def offsets(cli: CommandLine) -> list[int]:
    return [int(line) for line in cli.run("tail", "commits", "--exit", "-f", "%o").stdout.split()]


def test_segments_that_all_consumers_have_consumed_are_compacted(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 20)
    acknowledge(cli, "lake/files", 34)
    printed = cli.run("segment", "compact", "commits", "--yes").stdout
    assert "commits/0.0  1 full segment below offset 20, with 17 messages (527 bytes)" in printed
    assert (
        "lake/crm blocks 1 full segment: it has acknowledged only the messages before 20" in printed
    )
    assert "commits/0.0: 17 messages -> 3, 527 bytes -> 93" in printed
    assert offsets(cli) == [14, 15, 16, *range(17, 35)]
    _, *listed = cli.run("segment", "list", "commits").stdout.splitlines()
    assert [line.split()[-1] for line in listed] == ["compacted", "closed", "active"]
    again = cli.run("segment", "compact", "commits").stdout
    assert again.startswith("commits: nothing to compact\n")
    assert "commits/0.0  nothing to compact; lake/crm blocks 1 full segment" in again


def test_a_dry_run_changes_nothing(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 34)
    plan = cli.json("segment", "compact", "--dry-run")
    assert [(p["partition"], p["segments"], p["below"]) for p in plan["partitions"]] == [
        ("commits/0.0", 2, 34)
    ]
    assert offsets(cli) == list(range(35))


def test_the_result_can_be_printed_as_json(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 34)
    report = cli.json("segment", "compact", str(LOG), "--yes")
    (done,) = report["partitions"]
    assert (done["segments"], done["rewritten"]) == (2, 2)
    assert (done["messages_before"], done["messages_after"]) == (34, 6)
    assert cli.json("segment", "list", str(LOG))[0]["compacted"]


def test_a_consumer_that_has_acknowledged_nothing_blocks_and_is_named(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 34)
    with tailrace.open(cli.hub) as hub:
        register(hub.backend.store, LOG.topic, "lake/late")
    printed = cli.run("segment", "compact").stdout
    assert "lake/late blocks 2 full segments: it has acknowledged no message yet" in printed
    assert offsets(cli) == list(range(35))
    with tailrace.open(cli.hub) as hub:
        unregister(hub.backend.store, LOG.topic, "lake/late")
    cli.run("segment", "compact", "--yes")
    assert offsets(cli) == [14, 15, 16, 31, 32, 33, 34]


def test_a_topic_without_a_consumer_is_left_alone(cli: CommandLine) -> None:
    assert "no topic with a registered consumer" in cli.run("segment", "compact").stdout
    printed = cli.run("segment", "compact", "commits", "--yes").stdout
    assert "commits: nothing to compact: no registered consumer, so no message counts as" in printed
    assert offsets(cli) == list(range(35))


def test_the_topic_of_a_queue_keeps_its_messages(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 34)
    with tailrace.open(cli.hub) as hub:
        hub.queue(LOG.topic, from_topic=True)
    printed = cli.run("segment", "compact", "commits", "--yes").stdout
    assert "nothing to compact: it is the topic of a queue, which keeps its messages" in printed
    planned = cli.json("segment", "compact", "--dry-run")["partitions"]
    assert str(LOG) not in [each["partition"] for each in planned]
    assert offsets(cli) == list(range(35))


def test_a_range_of_time_with_dropped_messages_is_refused_with_what_is_left(
    cli: CommandLine,
) -> None:
    with tailrace.open(cli.hub) as hub:
        topic = hub.topic(LOG.topic)
        assert sum(span.end - span.start for span in spans(topic, 0)) == 35
    acknowledge(cli, "lake/crm", 34)
    cli.run("segment", "compact", "commits", "--yes")
    with tailrace.open(cli.hub) as hub:
        topic = hub.topic(LOG.topic)
        with pytest.raises(tailrace.NotRetained) as refused:
            spans(topic, 0)
        assert refused.value.retained == (TIME_MS, TIME_MS), "that of the active segment"
        late = topic.push(b"late", timestamp=TIME_MS + 5_000)
        with pytest.raises(tailrace.NotRetained):
            spans(topic, 0)
        (span,) = spans(topic, TIME_MS + 1)
        assert (span.start, span.end) == (late.offset, late.offset + 1)


def spans(topic: tailrace.Topic[Any], start_ms: int) -> list[OffsetSpan]:
    return [*offsets_between(topic.view, start_ms, 10**13).values()]


def test_without_a_terminal_to_ask_on_yes_is_needed(cli: CommandLine) -> None:
    acknowledge(cli, "lake/crm", 34)
    assert "--yes" in cli.run("segment", "compact", status=2).stderr
    assert offsets(cli) == list(range(35))


def test_a_partition_that_cannot_be_compacted_yet_is_reported_with_the_reason(
    cli: CommandLine,
) -> None:
    acknowledge(cli, "lake/crm", 34)
    cli.run("segment", "compact", "--yes")
    assert "every full segment is compacted" in cli.run("segment", "compact").stdout
    with tailrace.open(cli.hub) as hub:
        register(hub.backend.store, "orders", "mailer")
    assert "orders/0.0  nothing to compact: no segment is full" in (
        cli.run("segment", "compact", "orders").stdout
    )
