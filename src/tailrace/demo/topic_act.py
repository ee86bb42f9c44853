"""The first act: a topic is scaled while processes push and consume; `kill -9` hits a producer and
the leader of the group."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.audit import audit_rows
from tailrace.demo.consumer import GROUP, RECEIVED
from tailrace.demo.control import READ_AT_A_TURN
from tailrace.demo.processes import Processes
from tailrace.demo.producer import RECEIPTS, SAVE_EVERY, TOPIC
from tailrace.demo.report import Row
from tailrace.demo.stage import Display, StageProgress
from tailrace.demo.workload import PRODUCERS, Order, Workload

COUNTS: Final = (4, 12, 8)
"""The numbers of partitions of the topic, in turn."""

WITHOUT: Final = f"""\
Orders: the killed producer has no name. It saves its receipts every {SAVE_EVERY:,} orders and \
restarts after the last saved one, so it stores later orders a second time; with every receipt \
saved it would store few or none twice. The same orders are placed by hash % partitions and read \
from the start, all partitions in parallel, {READ_AT_A_TURN} records at a time; a reader that \
keeps up would lose the order of fewer customers."""
"""How the last column of this act's rows is calculated."""

CONSUMERS: Final = 3

_KILLED_PRODUCER: Final = 2
_POLL_S: Final = 0.02
_TERM_S_MAX: Final = 30.0


class _Event(NamedTuple):
    """An event after a part of the orders is stored. `cause` causes it and describes it."""

    after: float
    cause: Callable[[], str]


def play_topic(directory: Path, workload: Workload, display: Display) -> list[Row]:
    """Play the act in the hub of a directory. Return its rows of the closing table."""
    for files in (RECEIPTS, RECEIVED):
        (directory / files).mkdir()
    display.say(
        f"{PRODUCERS} processes push {workload.orders:,} orders of {workload.customers:,} customers"
        f" to {directory}, each synced to disk before its receipt; {CONSUMERS} processes consume"
    )
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        topic = hub.create_topic(TOPIC, Order, partitions=COUNTS[0])
        producers = Processes(
            "producer",
            PRODUCERS,
            lambda number: (
                *("tailrace.demo.producer", str(directory)),
                *(str(number), str(workload.orders)),
            ),
        )
        consumers = Processes(
            "consumer",
            CONSUMERS,
            lambda number: ("tailrace.demo.consumer", str(directory), str(number)),
        )
        with consumers, producers:
            pushing = StageProgress(display, "pushing", workload.orders, "orders")
            _push_all(hub, topic, producers, consumers, pushing, workload.orders)
            consuming = StageProgress(display, "consuming", workload.orders, "orders")
            _consume_all(hub, consumers, consuming, workload.orders)
    return audit_rows(directory, workload, COUNTS)


def commands(directory: Path) -> list[str]:
    """Return commands that inspect the outcome."""
    return [
        f"tailrace --hub {shlex.quote(str(directory))} topic show {TOPIC}",
        f"tailrace --hub {shlex.quote(str(directory))} group history {GROUP}",
        f"tailrace --hub {shlex.quote(str(directory))} tail {TOPIC} --exit -f '%p %v' | grep c0001",
    ]


def _push_all(
    hub: tailrace.Hub,
    topic: tailrace.Topic[Order],
    producers: Processes,
    consumers: Processes,
    progress: StageProgress,
    orders: int,
) -> None:
    """Wait until the producers have pushed every order. Scale and kill meanwhile."""
    events = deque(
        (
            _Event(0.25, lambda: _scale(topic, COUNTS[1])),
            _Event(0.40, lambda: _kill_producer(producers)),
            _Event(0.50, lambda: _kill_leader(hub, consumers)),
            _Event(0.60, lambda: _scale(topic, COUNTS[2])),
        )
    )
    while producers.running():
        stored = sum(sum(storage.ends) for storage in topic.storage_topics)
        if events and stored >= events[0].after * orders:
            progress.say(events.popleft().cause())
        progress.show(stored)
        time.sleep(_POLL_S)
    progress.end()


def _consume_all(
    hub: tailrace.Hub, consumers: Processes, progress: StageProgress, orders: int
) -> None:
    """Wait until the group has acknowledged every order, then stop the consumers."""
    while lag := hub.group(GROUP).describe().summary.lag:
        consumers.running()
        progress.show(max(0, orders - lag))
        time.sleep(10 * _POLL_S)
    progress.end()
    consumers.stop()


def _scale(topic: tailrace.Topic[Order], partitions: int) -> str:
    return f"  scaled:  {topic.scale(partitions).summary}"


def _kill_producer(producers: Processes) -> str:
    producers.replace(_KILLED_PRODUCER)
    return f"  kill -9: producer {_KILLED_PRODUCER}; another process continues under its name"


def _kill_leader(hub: tailrace.Hub, consumers: Processes) -> str:
    """Kill the consumer that leads the group, and wait until another leads."""
    group = hub.group(GROUP)
    deadline = time.monotonic() + _TERM_S_MAX
    while (led := group.describe()).leader is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    number = consumers.number_of(int((led.leader or "process 0").split()[1]))
    assert number is not None, f"{led.leader} is not one of the demo's consumers"
    killed = time.monotonic()
    consumers.replace(number)
    while group.describe().term in (None, led.term) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    took_s = time.monotonic() - killed
    return f"  kill -9: consumer {number}, the group's leader; another leads after {took_s:.1f} s"
