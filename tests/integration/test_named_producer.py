"""Named producers in real processes: each message once, in order, over kills and takeovers."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import BackendUnavailable, Fenced
from tailrace.settings import HubSettings
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report, continued_after, stop
from tests.support.topics import all_messages
from tests.support.waiting import until

pytestmark = pytest.mark.part("fences")

NAME = "importer"
KEYS = 40
BATCH_BYTES = 400
FIRST = 200
"""The number of messages that a producer sends before it reports that it is running."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tailrace.Hub]:
    settings = HubSettings(lock_timeout=timedelta(seconds=2))
    with tailrace.open(tmp_path / "hub", sync="none", settings=settings) as opened:
        yield opened


def _value(number: int) -> bytes:
    return b"%d" % number


def _key(number: int) -> str:
    # In no step with the batches, so that keys meet in ever new ways.
    return f"k{number * number % 101 % KEYS}"


def _push_on(report: Report, directory: Path, end: int | None) -> None:
    """Child: continue after the last message of the name, up to `end` or for ever.

    It may be stopped while it waits for a lock, and the time for that wait goes on.
    """
    patient = HubSettings(lock_timeout=timedelta(minutes=5))
    with tailrace.open(directory, settings=patient) as hub:
        producer = hub.topic("jobs", bytes).producer(
            name=NAME, linger="1ms", batch_bytes=BATCH_BYTES
        )
        start = number = producer.last_number
        report(number)
        try:
            while end is None or number < end:
                producer.push(_value(number), key=_key(number))
                number += 1
                if number == start + FIRST:
                    report("running")
            producer.close()
            report("done")
        except Fenced:
            report("fenced")


def _stored(hub: tailrace.Hub) -> list[tuple[str | None, int]]:
    """Return keys and numbers of all messages, in lineage order."""
    topic = hub.topic("jobs", bytes)
    return [(message.key, int(message.data)) for message in all_messages(topic)]


def _violations(stored: list[tuple[str | None, int]], end: int) -> list[str]:
    """Return the violations: messages up to `end` that are missing, repeated or out of order."""
    found = []
    numbers = sorted(number for _, number in stored)
    if numbers != list(range(end)):
        missing = sorted(set(range(end)) - set(numbers))
        found.append(f"{len(numbers)} stored of {end}, missing {missing[:5]}")
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    for key, number in stored:
        by_key[key].append(number)
    found += [f"{key} is out of order" for key, order in by_key.items() if order != sorted(order)]
    return found


def test_a_named_producer_that_is_killed_again_and_again_stores_each_message_once_and_in_order(
    hub: tailrace.Hub, tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    kills = count("producer_kills", test=10, soak=100)
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    topic = hub.create_topic("jobs", bytes, partitions=4)
    scales = {kills // 3: 12, 2 * kills // 3: 8}
    starts = []
    for number in range(kills):
        child = Child(_push_on, tmp_path / "hub", None)
        starts.append(child.next_report())
        list(child.reports_for(chance.uniform(0.0, 0.15)))
        if number in scales:
            until(lambda: any(topic.storage_topics[-1].ends))
            topic.scale(scales[number])
            until(lambda: any(topic.storage_topics[-1].ends))
            list(child.reports_for(chance.uniform(0.0, 0.15)))
        list(child.kill())
        assert child.exit_code == -9
    last = Child(_push_on, tmp_path / "hub", 0)
    end = last.next_report() + 1000
    assert list(last.rest()) == ["done"]
    final = Child(_push_on, tmp_path / "hub", end)
    assert list(final.rest()) == [end - 1000, "running", "done"]
    violations = _violations(_stored(hub), end)
    record_evidence(
        "fences", "kills of a named producer over two switches", kills, [seed], len(violations)
    )
    assert violations == []
    assert starts == sorted(starts)
    assert len(topic.storage_topics) == 3
    assert all(sum(storage.ends) for storage in topic.storage_topics)


def test_of_two_live_producers_of_one_name_the_older_is_fenced(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    topic = hub.create_topic("jobs", bytes, partitions=4)
    older = Child(_push_on, tmp_path / "hub", None)
    assert [older.next_report(), older.next_report()] == [0, "running"]
    newer = topic.producer(name=NAME)
    start = newer.last_number
    for number in range(start, start + 100):
        newer.push(_value(number), key=_key(number))
    newer.close()
    assert list(older.rest()) == ["fenced"]
    assert _violations(_stored(hub), start + 100) == []


def test_a_producer_that_slept_through_a_takeover_writes_nothing_when_it_wakes(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    topic = hub.create_topic("jobs", bytes, partitions=4)
    end = 0
    for _ in range(count("producer_sleeps", test=4, soak=50)):
        sleeper = Child(_push_on, tmp_path / "hub", None)
        assert [sleeper.next_report(), sleeper.next_report()] == [end, "running"]
        newer = None
        while newer is None:
            with (
                continued_after(stop(sleeper.pid)),
                suppress(BackendUnavailable),  # it was stopped inside the commit lock
            ):
                newer = topic.producer(name=NAME)
        assert list(sleeper.rest()) == ["fenced"]
        end = newer.last_number + 10
        for number in range(newer.last_number, end):
            newer.push(_value(number), key=_key(number))
        newer.close()
    assert _violations(_stored(hub), end) == []


def test_names_of_other_topics_and_other_names_do_not_fence(hub: tailrace.Hub) -> None:
    jobs = hub.create_topic("jobs", bytes, partitions=1)
    other = hub.create_topic("other", bytes, partitions=1)
    with jobs.producer(name=NAME) as producer:
        other.producer(name=NAME).close()
        jobs.producer(name="another").close()
        assert producer.push(b"0").result().offset == 0
