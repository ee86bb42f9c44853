"""Consumers of a group in several processes: takeovers, and how long they take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tailrace
from tailrace.group.consumer.consumer import Consumer
from tailrace.hub.hub import Hub
from tests.support.processes import Child, Report, continued_after, stop

pytestmark = pytest.mark.part("groups")

PARTITIONS = 6
LONG_LEASE = "10m"
"""With it, nothing but the end of a process frees its partitions within the time of a test."""


class Seen(NamedTuple):
    """A message that a process received, with the time of the host's clock."""

    value: int
    partition: int
    at: float
    pid: int


def _tail(hub: Hub) -> Consumer[int]:
    return hub.topic("orders", int).tail(group="billing")


def _open(directory: Path, lease: str) -> Hub:
    return tailrace.open(directory, settings=tailrace.HubSettings.of(lease=lease))


def _consume(report: Report, directory: Path, lease: str) -> None:
    """Consume until killed, and report every message."""
    with _open(directory, lease) as hub, _tail(hub) as consumer:
        report("joined")
        for delivery in consumer:
            seen = Seen(delivery.value, delivery.partition, time.monotonic(), os.getpid())
            report(seen)


def _consume_some(report: Report, directory: Path, count: int) -> None:
    """Consume a number of messages, and leave in order."""
    with _open(directory, LONG_LEASE) as hub:
        with _tail(hub) as consumer:
            report("joined")
            for taken, delivery in enumerate(consumer, 1):
                report(Seen(delivery.value, delivery.partition, time.monotonic(), os.getpid()))
                if taken == count:
                    break
        report("left")


class Pusher:
    """Pushes numbers to all partitions in turn."""

    def __init__(self, hub: Hub) -> None:
        self.topic = hub.create_topic("orders", int, partitions=PARTITIONS)
        keys = {self.topic.route(f"k{number}"): f"k{number}" for number in range(1000)}
        self._keys = [keys[number] for number in range(PARTITIONS)]
        self.pushed = 0

    def push(self) -> None:
        """Push one message to each partition."""
        numbers = range(self.pushed, self.pushed + PARTITIONS)
        self.topic.push_many([(self._keys[n % PARTITIONS], n) for n in numbers])
        self.pushed += PARTITIONS


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with tailrace.open(tmp_path / "hub", sync="none") as opened:
        yield opened


@contextmanager
def _consumers(directory: Path, count: int, lease: str = LONG_LEASE) -> Iterator[list[Child]]:
    children = [Child(_consume, directory, lease) for _ in range(count)]
    try:
        assert [child.next_report() for child in children] == ["joined"] * count
        yield children
    finally:
        for child in children:
            list(child.kill())


def _collect(
    pusher: Pusher, children: list[Child], done: Callable[[list[Seen]], object]
) -> list[Seen]:
    """Push and collect reports until a condition holds."""
    seen: list[Seen] = []
    deadline = time.monotonic() + 30
    while not done(seen):
        assert time.monotonic() < deadline, seen[-20:]
        pusher.push()
        for child in children:
            seen += [report for report in child.reports_for(0.005) if isinstance(report, Seen)]
    return seen


def _owners(seen: list[Seen], last: int = 2 * PARTITIONS) -> set[int]:
    return {each.pid for each in seen[-last:]}


def _all_partitions_by(pid: int) -> Callable[[list[Seen]], object]:
    def found(seen: list[Seen]) -> bool:
        mine = [each for each in seen if each.pid == pid]
        return {each.partition for each in mine} == set(range(PARTITIONS))

    return found


def test_two_processes_share_a_topic_and_one_takes_over_when_the_other_is_killed(
    hub: Hub, tmp_path: Path
) -> None:
    pusher = Pusher(hub)
    with _consumers(tmp_path / "hub", 2) as children:
        both = {child.pid for child in children}
        seen = _collect(pusher, children, lambda seen: _owners(seen) == both)
        victim, survivor = children
        killed_at = time.monotonic()
        seen += [each for each in victim.kill() if isinstance(each, Seen)]
        after = _collect(pusher, [survivor], _all_partitions_by(survivor.pid))
    print(f"taken over after {(_taken_over_at(after) - killed_at) * 1000:.0f} ms")
    _check_nothing_is_lost([*seen, *after])


def _check_nothing_is_lost(seen: list[Seen]) -> None:
    """Check that each partition was seen without gaps and in order, apart from repeats."""
    for number in range(PARTITIONS):
        mine = sorted((each for each in seen if each.partition == number), key=lambda s: s.at)
        first_times = list(dict.fromkeys(each.value for each in mine))
        assert first_times == list(range(number, max(first_times) + 1, PARTITIONS))


def _taken_over_at(after: list[Seen]) -> float:
    """Return the time at which the last of the partitions was consumed again."""
    return max(
        min(each.at for each in after if each.partition == number) for number in range(PARTITIONS)
    )


def test_when_the_leader_is_killed_another_leads_and_consumption_continues(
    hub: Hub, tmp_path: Path
) -> None:
    pusher = Pusher(hub)
    with _consumers(tmp_path / "hub", 1) as first, _consumers(tmp_path / "hub", 2) as others:
        everybody = {child.pid for child in (*first, *others)}
        seen = _collect(pusher, [*first, *others], lambda seen: _owners(seen) == everybody)
        killed_at = time.monotonic()
        seen += [each for each in first[0].kill() if isinstance(each, Seen)]
        partitions = set(range(PARTITIONS))
        after = _collect(
            pusher, others, lambda seen: {each.partition for each in seen} == partitions
        )
    print(f"taken over after {(_taken_over_at(after) - killed_at) * 1000:.0f} ms")
    _check_nothing_is_lost([*seen, *after])


def test_a_process_that_leaves_in_order_repeats_no_message(hub: Hub, tmp_path: Path) -> None:
    pusher = Pusher(hub)
    with _consumers(tmp_path / "hub", 1) as (stays,):
        leaves = Child(_consume_some, tmp_path / "hub", 50)
        reports: list[Any] = []

        def left(_: list[Seen]) -> bool:
            reports.extend(leaves.reports_for(0.0))
            return "left" in reports

        seen = _collect(pusher, [stays], left)
        assert list(leaves.rest()) == []
        seen += _collect(pusher, [stays], _all_partitions_by(stays.pid))
        while len(seen) + 50 < pusher.pushed:
            seen.append(stays.next_report())
    mine = [report for report in reports if isinstance(report, Seen)]
    values = [each.value for each in (*seen, *mine)]
    assert len(mine) == 50
    assert sorted(values) == list(range(pusher.pushed))


def test_a_stopped_process_loses_its_partitions_and_comes_back(hub: Hub, tmp_path: Path) -> None:
    pusher = Pusher(hub)
    with _consumers(tmp_path / "hub", 2, lease="3s") as children:
        both = {child.pid for child in children}
        seen = _collect(pusher, children, lambda seen: _owners(seen) == both)
        paused, other = children
        with continued_after(stop(paused.pid)):
            seen += _collect(pusher, children, _all_partitions_by(other.pid))
        again = _collect(pusher, children, lambda seen: _owners(seen) == both)
    _check_nothing_is_lost([*seen, *again])


def test_nothing_is_left_of_consumers_that_left(hub: Hub, tmp_path: Path) -> None:
    pusher = Pusher(hub)
    for _ in range(10):
        pusher.push()
    child = Child(_consume_some, tmp_path / "hub", 10)
    assert list(child.rest())[-1] == "left"
    for name in ("hub.sockets", "hub.holds"):
        assert list((tmp_path / "hub" / name).iterdir()) == []
