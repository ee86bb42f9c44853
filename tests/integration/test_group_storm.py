"""A group whose consumers are killed, paused, added and sent away while its topic is scaled."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tests.evidence import RecordEvidence
from tests.integration.children import Child
from tests.integration.sightings import TOPIC, Blow, Verdict, read_lines
from tests.integration.storm import GROUP, Storm, push
from tests.scale import count, soaking

pytestmark = [pytest.mark.part("groups"), pytest.mark.timeout(1800)]

STREAMS = 24
SCALED = (36, 24)
CONSUMERS = 6
CAUGHT_UP_S = 120.0
BUDGET_RECORDS = 500
SETTINGS = tailrace.HubSettings.of(
    redelivery_records_max=BUDGET_RECORDS, lease="3s" if soaking() else "2s", lock_timeout="60s"
)
"""Of consumers: none is to give up when one that is paused within a commit holds up the others."""


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with tailrace.open(tmp_path / "hub", sync="none") as hub:
        hub.create_topic(TOPIC, bytes, partitions=STREAMS)
    pause_s = (10.0, 10.0) if soaking() else (1.0, 4.0)
    storm = Storm(tmp_path, SETTINGS, seed, pause_s)
    yield storm
    storm.abandon()


def _await_consumed(hub: tailrace.Hub, storm: Storm, producer: Child) -> None:
    assert producer.next_report(CAUGHT_UP_S) == "pushed"
    deadline = time.monotonic() + CAUGHT_UP_S
    while behind := sum(stream.behind for stream in hub.group(GROUP).lag()):
        assert time.monotonic() < deadline, f"{behind} wait, {hub.group(GROUP).history(30)}"
        storm.resume(time.monotonic())
        time.sleep(0.05)


def test_nothing_is_lost_or_disordered_and_repeated_within_budget_whatever_befalls_consumers(
    tmp_path: Path, storm: Storm, record_evidence: RecordEvidence
) -> None:
    messages = count("storm messages", test=40_000, soak=1_000_000)
    blows = count("storm blows", test=20, soak=120)
    interval_s = 2.0 if soaking() else 0.5
    receipts = tmp_path / "told"
    with tailrace.open(tmp_path / "hub") as hub:
        for _ in range(CONSUMERS):
            storm.join()
        for consumer in storm.present:
            consumer.await_joined()
        producer = Child(push, tmp_path / "hub", receipts, messages, blows * interval_s)
        for number in range(blows):
            time.sleep(storm.chance.uniform(0.0, 2 * interval_s))
            storm.strike(hub, least=2, most=CONSUMERS + 2)
            if number in (blows // 3, 2 * blows // 3):
                storm.scale(hub.topic(TOPIC, bytes), SCALED[number // (blows // 3) - 1])
        _await_consumed(hub, storm, producer)
        storm.end()
    verdict = Verdict.of(read_lines(receipts), storm.files, storm.incidents)
    _tell(storm, verdict)
    over = sum(again > BUDGET_RECORDS for again in verdict.repeats.by_incident.values())
    violations = sum(verdict.wrong.values()) + over
    what = f"messages under kills, pauses and scaling; {_measured(verdict)}"
    record_evidence("groups", what, verdict.audit.seen, [storm.seed], violations)
    assert verdict.audit.told == messages
    assert verdict.wrong == {}
    assert verdict.repeats.most <= BUDGET_RECORDS


def _measured(verdict: Verdict) -> str:
    repeats = verdict.repeats
    again = repeats.seen - verdict.audit.seen
    return (
        f"{again} came again, at most {repeats.most} of a stream after a blow,"
        f" handed out up to {repeats.oldest_s:.2f} s before it"
    )


def _tell(storm: Storm, verdict: Verdict) -> None:
    killed = sum(incident.blow is Blow.KILLED for incident in storm.incidents)
    paused = len(storm.incidents) - killed
    print(f"{len(storm.files)} consumers: {killed} killed, {paused} paused, {storm.left} left;")
    print(f"{storm.terms_ended} of them while they led; {_measured(verdict)}; {verdict.wrong}")
