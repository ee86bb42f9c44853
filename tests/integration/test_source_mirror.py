"""A topic of another hub that several tasks mirror, while it is scaled and tasks are killed."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest

import tailrace
from tailrace import Source, readers
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.topics import all_messages
from tests.support.waiting import until

pytestmark = [pytest.mark.part("sources"), pytest.mark.timeout(1200)]

TASKS = 2
KEYS = 50
SCALINGS = (12, 8)
READ_S = 600.0


def mirror_until_killed(report: Report, directory: Path) -> None:
    """Child: one task of the mirror."""
    with tailrace.open(directory / "mirror", sync="none") as hub:
        report("started")
        reader = readers.topic("orders", hub=str(directory / "shop"), into="copies")
        Source("copy", reader).run(hub)


def has_copied(hub: tailrace.Hub, messages: int) -> bool:
    """True if the mirror has that many messages."""
    ends = [end for storage in hub.topic("copies").storage_topics for end in storage.ends]
    return sum(ends) >= messages


def test_a_mirror_has_each_message_once_and_in_order_per_key_over_two_scalings(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    messages = count("mirrored messages", test=6_000, soak=300_000)
    kills, seed = count("mirror kills", test=3, soak=20), random.randrange(2**32)
    chance = random.Random(seed)
    with (
        tailrace.open(tmp_path / "shop", sync="none") as shop,
        tailrace.open(tmp_path / "mirror", sync="none") as mirror,
    ):
        orders = shop.create_topic("orders", partitions=4)
        mirror.create_topic("copies", partitions=3)
        tasks = [Child(mirror_until_killed, tmp_path) for _ in range(TASKS)]
        steps = kills * 2
        for step in range(steps):
            first, end = messages * step // steps, messages * (step + 1) // steps
            for start in range(first, end, 100):
                numbers = range(start, min(start + 100, end))
                orders.push_many([(f"c{number % KEYS}", number) for number in numbers])
            if step in (steps // 3, 2 * steps // 3):
                orders.scale(SCALINGS[int(step > steps // 3)])
            if step % 2:
                until(partial(has_copied, mirror, first), within_s=READ_S)
                list(tasks.pop(chance.randrange(TASKS)).kill())
                tasks.append(Child(mirror_until_killed, tmp_path))
        until(partial(has_copied, mirror, messages), "messages are missing", within_s=READ_S)
        for task in tasks:
            list(task.kill())
        assert len(orders.storage_topics) == 1 + len(SCALINGS)
        copies: defaultdict[str | None, list[int]] = defaultdict(list)
        for message in all_messages(mirror.topic("copies")):
            copies[message.key].append(message.value)
    wrong = sum(
        copies[f"c{key}"] != list(range(key, messages, KEYS)) for key in range(min(KEYS, messages))
    )
    record_evidence("sources", f"mirrored messages, {kills} kills", messages, [seed], wrong)
    assert wrong == 0, f"seed {seed}"
