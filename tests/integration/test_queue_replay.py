"""A replay that is killed and resumed beside live traffic: each message of the range, once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import tailrace
from tailrace import Queue, ReplayState
from tailrace.queue.replay.lifecycle import NewReplay, create_replay
from tests.integration.replayers import (
    HANDLED,
    HOUR_MS,
    KEYS,
    QUEUE,
    REPLAY,
    SEEN,
    copy_replay,
    handle_replay,
    keep_consuming,
    keep_pushing,
    make_hub,
    push_skewed,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.handler_log import HandlerLog
from tests.support.processes import Child, Report
from tests.support.replays import copies, stored_messages, values_by_key
from tests.support.waiting import until

pytestmark = pytest.mark.part("queues")

KILLS = count("queue_replay_kills", test=2, soak=5)
MESSAGES = count("queue_replay_messages", test=2_000, soak=20_000)
"""The number of messages of each of the two producers."""

ByKey = dict[str, list[int]]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("with_handler", [True, False], ids=["handler", "copies"])
def test_a_replay_killed_and_resumed_has_each_message_of_the_range_once(
    tmp_path: Path, with_handler: bool, record_evidence: RecordEvidence
) -> None:
    path, log = tmp_path / "hub", tmp_path / "log"
    make_hub(path)
    noon_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    start_ms, end_ms = noon_ms - HOUR_MS + MESSAGES // 4, noon_ms + MESSAGES * 3 // 4
    with tailrace.open(path, sync="none") as hub:
        queue = hub.queue(QUEUE, int)
        push_skewed(queue, 0, MESSAGES // 2, noon_ms)
        if with_handler:
            queue.topic.scale(24)
        push_skewed(queue, MESSAGES // 2, MESSAGES, noon_ms)
        live = [start(keep_consuming, path), start(keep_pushing, path)]
        new = NewReplay(start_ms, end_ms, with_handler, "ada@host", REPLAY)
        create_replay(hub.backend, QUEUE, new, noon_ms)
        kill_in_turns(queue, path, log, with_handler)
        pushed, took_s = finish(queue, live)
        range_of_times = wanted(MESSAGES // 4, MESSAGES, "behind")
        range_of_times |= wanted(0, MESSAGES * 3 // 4, "ahead")
        everything = wanted(0, MESSAGES, "behind") | wanted(0, MESSAGES, "ahead")
        found = {
            "replayed": by_key(hub.topic(HANDLED, int)) if with_handler else copied(queue),
            "live": by_key(hub.topic(SEEN, int)),
        }
        expected = {"replayed": range_of_times, "live": everything | wanted(0, pushed, "live")}
        if not with_handler:
            marked = {f"{key}/{REPLAY}": values for key, values in range_of_times.items()}
            expected["live"] |= marked
        conserved = queue.stats().conserved
    wrong = sum(found[each] != expected[each] for each in found) + (conserved is not True)
    kind = "with a handler" if with_handler else "pushed again"
    what = f"replay under kill -9, {kind}, while {pushed / took_s:,.0f} messages/s are pushed"
    record_evidence("queues", what, KILLS, [], wrong)
    assert found == expected
    assert conserved
    if with_handler:
        handled = {(key, each) for key, values in range_of_times.items() for each in values}
        assert HandlerLog(log).succeeded() == handled


def kill_in_turns(queue: Queue[int], path: Path, log: Path, with_handler: bool) -> None:
    """Work on the replay in a process that is killed, several times, and then in two."""
    work, replay = handle_replay if with_handler else copy_replay, queue.find_replay(REPLAY)
    total = replay.progress().total
    for turn in range(1, KILLS + 1):
        child = Child(work, path, log)
        child.next_report()
        until(lambda: replay.progress().done >= total * turn // (2 * KILLS + 2))  # noqa: B023
        list(child.kill())
        assert replay.progress().state is ReplayState.RUNNING, "killed in the middle"
        if turn == 1 and not with_handler:
            queue.topic.scale(24)
    children = [Child(work, path, log) for _ in range(2)]
    for child in children:
        list(child.rest(600.0))
        assert child.exit_code == 0
    assert replay.progress().state is ReplayState.DONE


def start(work: Callable[[Report, Path], None], path: Path) -> Child:
    """Start a process, and wait until it works."""
    child = Child(work, path)
    child.next_report()
    return child


def finish(queue: Queue[int], live: list[Child]) -> tuple[int, float]:
    """End the live traffic once everything is consumed. Return the number of messages, and the
    seconds that pushing took."""
    consumer, producer = live
    os.kill(producer.pid, signal.SIGTERM)
    ((pushed, took_s),) = producer.rest()
    until(lambda: queue.stats().total.acked == queue.stats().total.inserted, within_s=600.0)
    os.kill(consumer.pid, signal.SIGTERM)
    list(consumer.rest())
    assert consumer.exit_code == producer.exit_code == 0
    return pushed, took_s


def wanted(first: int, after: int, name: str) -> ByKey:
    """Return the messages of a producer from one number up to another, by key, in order."""
    return {
        f"{name}{key}": values
        for key in range(KEYS)
        if (values := [each for each in range(first, after) if each % KEYS == key])
    }


def by_key(topic: tailrace.Topic[int]) -> ByKey:
    """Return the messages of a topic, by key, in order."""
    return values_by_key((each.key, each.value) for each in stored_messages(topic))


def copied(queue: Queue[int]) -> ByKey:
    """Return the copies that the queue has, by key, in order."""
    found: Iterable[tuple[str, int]] = ((each.key, each.value) for each in copies(queue.topic))
    return values_by_key(found)
