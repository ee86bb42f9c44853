"""A group whose consumers are killed, paused, added and stopped while its topic is scaled."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tests.integration.chaos import GROUP, Chaos, push
from tests.support.counts import count, soaking
from tests.support.delivery_log import TOPIC, Fault, Verdict, read_lines
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child

pytestmark = [pytest.mark.part("groups"), pytest.mark.timeout(1800)]

STREAMS = 24
SCALED = (36, 24)
CONSUMERS = 6
CAUGHT_UP_S = 120.0
BUDGET_RECORDS = 500
SETTINGS = tailrace.HubSettings.of(
    redelivery_records_max=BUDGET_RECORDS, lease="3s" if soaking() else "2s", lock_timeout="60s"
)
"""The lock timeout is long, because a consumer paused in a commit blocks the others."""


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        hub.create_topic(TOPIC, bytes, partitions=STREAMS)
    pause_s = (10.0, 10.0) if soaking() else (1.0, 4.0)
    chaos = Chaos(tmp_path, SETTINGS, seed, pause_s)
    yield chaos
    chaos.abandon()


def _await_consumed(hub: tailrace.Hub, chaos: Chaos, producer: Child) -> None:
    assert producer.next_report(CAUGHT_UP_S) == "pushed"
    deadline = time.monotonic() + CAUGHT_UP_S
    while behind := sum(stream.lag for stream in hub.group(GROUP).lag()):
        assert time.monotonic() < deadline, f"{behind} wait, {hub.group(GROUP).history(30)}"
        chaos.resume(time.monotonic())
        time.sleep(0.05)


def test_nothing_is_lost_or_disordered_and_repeats_stay_within_budget_under_kills_and_pauses(
    tmp_path: Path, chaos: Chaos, record_evidence: RecordEvidence
) -> None:
    messages = count("chaos messages", test=40_000, soak=1_000_000)
    faults = count("chaos faults", test=20, soak=120)
    interval_s = 2.0 if soaking() else 0.5
    receipts = tmp_path / "receipts"
    with tailrace.open(tmp_path / "hub") as hub:
        for _ in range(CONSUMERS):
            chaos.join()
        for consumer in chaos.present:
            consumer.await_joined()
        producer = Child(push, tmp_path / "hub", receipts, messages, faults * interval_s)
        for number in range(faults):
            time.sleep(chaos.chance.uniform(0.0, 2 * interval_s))
            chaos.inject_fault(hub, least=2, most=CONSUMERS + 2)
            if number in (faults // 3, 2 * faults // 3):
                chaos.scale(hub.topic(TOPIC, bytes), SCALED[number // (faults // 3) - 1])
        _await_consumed(hub, chaos, producer)
        chaos.end()
    verdict = Verdict.of(read_lines(receipts), chaos.files, chaos.incidents)
    _print(chaos, verdict)
    over = sum(again > BUDGET_RECORDS for again in verdict.repeats.by_incident.values())
    violations = sum(verdict.wrong.values()) + over
    what = f"messages under kills, pauses and scaling; {_measured(verdict)}"
    record_evidence("groups", what, verdict.audit.seen, [chaos.seed], violations)
    assert verdict.audit.pushed == messages
    assert verdict.wrong == {}
    assert verdict.repeats.most <= BUDGET_RECORDS


def _measured(verdict: Verdict) -> str:
    repeats = verdict.repeats
    again = repeats.seen - verdict.audit.seen
    return (
        f"{again} repeated, at most {repeats.most} of a partition after an incident,"
        f" delivered up to {repeats.oldest_s:.2f} s before it"
    )


def _print(chaos: Chaos, verdict: Verdict) -> None:
    killed = sum(incident.fault is Fault.KILLED for incident in chaos.incidents)
    paused = len(chaos.incidents) - killed
    print(f"{len(chaos.files)} consumers: {killed} killed, {paused} paused, {chaos.left} left;")
    print(f"{chaos.terms_ended} of them while they led; {_measured(verdict)}; {verdict.wrong}")
