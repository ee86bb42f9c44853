"""Consumers in child processes that join and leave in order: each message once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tailrace
from tests.integration.chaos import GROUP, line_of, push
from tests.support.counts import count
from tests.support.delivery_log import TOPIC, DeliveryLog, Verdict, read_lines
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report

pytestmark = [pytest.mark.part("groups"), pytest.mark.timeout(1800)]

VISITORS = 4
VISIT_S = 0.5
SETTINGS = tailrace.HubSettings.of(lease="10m")
"""No consumer loses its partitions, however long a busy machine lets it wait."""


def _visit(report: Report, directory: Path, file: Path, visits: int, most: int) -> None:
    """Join, consume some messages and leave, repeatedly."""
    lines, chance = DeliveryLog(file), random.Random(str(file))
    with tailrace.open(directory, settings=SETTINGS) as hub:
        topic = hub.topic(TOPIC, bytes)
        for _ in range(visits):
            with topic.tail(group=GROUP, idle_timeout="500ms") as consumer:
                enough = chance.randint(1, most)
                for taken, delivery in enumerate(consumer, 1):
                    lines.write([line_of(delivery)])
                    if taken == enough:
                        break
    report("done")


def _consume_rest(directory: Path, file: Path) -> None:
    lines = DeliveryLog(file)
    with (
        tailrace.open(directory, settings=SETTINGS) as hub,
        hub.topic(TOPIC, bytes).tail(group=GROUP, until="end") as consumer,
    ):
        for delivery in consumer:
            lines.write([line_of(delivery)])


def test_while_consumers_come_and_go_in_order_each_message_is_delivered_once_and_in_order(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    messages = count("orderly messages", test=20_000, soak=500_000)
    visits = count("visits", test=8, soak=150)
    directory, receipts = tmp_path / "hub", tmp_path / "receipts"
    with tailrace.open(directory, sync="none") as hub:
        hub.create_topic(TOPIC, bytes, partitions=12)
    files = [tmp_path / f"seen-{number}" for number in range(VISITORS + 1)]
    most = 2 * messages // (visits * VISITORS)
    producer = Child(push, directory, receipts, messages, visits * VISIT_S)
    visitors = [Child(_visit, directory, file, visits, most) for file in files[:-1]]
    assert producer.next_report(visits * VISIT_S + 60) == "pushed"
    for visitor in visitors:
        assert visitor.next_report(visits * 5.0 + 60) == "done"
    _consume_rest(directory, files[-1])
    verdict = Verdict.of(read_lines(receipts), files)
    marked = sum(line.marked for file in files for line in read_lines(file))
    violations = sum(verdict.wrong.values()) + len(verdict.audit.doubled) + marked
    record_evidence("groups", "orderly joins and leaves", visits * VISITORS, [], violations)
    assert verdict.audit.well, verdict.wrong
    assert verdict.audit.seen == verdict.audit.pushed == messages
    assert marked == 0
