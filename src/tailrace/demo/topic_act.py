"""The first act: a topic is re-scaled while it is pushed to and consumed, and `kill -9` falls on a
producer and on the leader of the consumers."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import tailrace
from tailrace.demo.audit import audited
from tailrace.demo.consuming import GROUP, SEEN
from tailrace.demo.control import READ_AT_A_TURN
from tailrace.demo.crew import Crew
from tailrace.demo.load import PRODUCERS, Load, Order
from tailrace.demo.producing import PUSHES_A_NOTE, RECEIPTS, TOPIC
from tailrace.demo.progress import Progress
from tailrace.demo.report import Row

COUNTS: Final = (4, 12, 8)
"""How many partitions the topic has, one after the other."""

WITHOUT: Final = f"""\
Orders: the killed producer has no name, notes its receipts every {PUSHES_A_NOTE:,} orders, goes on
behind the last note and stores again what was stored since; had it noted each order, few or none.
The same orders lie by hash % partitions and are read from the start, all partitions side by side,
{READ_AT_A_TURN} records a turn; a reader that keeps up would fare better."""
"""How the last column of its rows comes about."""

CONSUMERS: Final = 3

_VICTIM: Final = 2
_LOOK_S: Final = 0.02
_TERM_S_MAX: Final = 30.0


class _Event(NamedTuple):
    """Something that happens when so much of the load is stored; `make` does it and tells of it."""

    after: float
    make: Callable[[], str]


def play_topic(directory: Path, load: Load) -> list[Row]:
    """Play it in the hub of a directory; the rows of the closing table."""
    for notes in (RECEIPTS, SEEN):
        (directory / notes).mkdir()
    print(
        f"{load.orders:,} orders of {load.customers:,} customers, pushed by {PRODUCERS} processes "
        f"into {directory}, each on the disk before its receipt is given, and consumed by "
        f"{CONSUMERS} others",
        file=sys.stderr,
    )
    with tailrace.open(directory, settings=tailrace.HubSettings()) as hub:
        topic = hub.create_topic(TOPIC, Order, partitions=COUNTS[0])
        producers = Crew(
            "producer",
            PRODUCERS,
            lambda number: (
                *("tailrace.demo.producing", str(directory)),
                *(str(number), str(load.orders)),
            ),
        )
        consumers = Crew(
            "consumer",
            CONSUMERS,
            lambda number: ("tailrace.demo.consuming", str(directory), str(number)),
        )
        with consumers, producers:
            _push_all(hub, topic, producers, consumers, load)
            _consume_all(hub, consumers, load)
    return audited(directory, load, COUNTS)


def commands(directory: Path) -> list[str]:
    """What to look at afterwards."""
    return [
        f"tailrace --hub {directory} topic show {TOPIC}",
        f"tailrace --hub {directory} group history {GROUP}",
        f"tailrace --hub {directory} tail {TOPIC} --exit -f '%p %v' | grep c0001",
    ]


def _push_all(
    hub: tailrace.Hub, topic: tailrace.Topic[Order], producers: Crew, consumers: Crew, load: Load
) -> None:
    """Let the producers push everything, and let things happen meanwhile."""
    progress = Progress(sys.stderr, "pushing", load.orders, "orders")
    events = deque(
        (
            _Event(0.25, lambda: _scaled(topic, COUNTS[1])),
            _Event(0.40, lambda: _replaced(producers)),
            _Event(0.50, lambda: _beheaded(hub, consumers)),
            _Event(0.60, lambda: _scaled(topic, COUNTS[2])),
        )
    )
    while producers.at_work():
        stored = sum(sum(storage.ends) for storage in topic.storage_topics)
        if events and stored >= events[0].after * load.orders:
            progress.say(events.popleft().make())
        progress.show(stored)
        time.sleep(_LOOK_S)
    progress.end()


def _consume_all(hub: tailrace.Hub, consumers: Crew, load: Load) -> None:
    """Wait until the group has acknowledged everything, then let the consumers go."""
    progress = Progress(sys.stderr, "consuming", load.orders, "orders")
    while behind := hub.group(GROUP).describe().summary.behind:
        consumers.at_work()
        progress.show(max(0, load.orders - behind))
        time.sleep(10 * _LOOK_S)
    progress.end()
    consumers.end()


def _scaled(topic: tailrace.Topic[Order], partitions: int) -> str:
    return f"  scaled:  {topic.scale(partitions).lines[0]}"


def _replaced(crew: Crew) -> str:
    crew.replace(_VICTIM)
    return f"  kill -9: producer {_VICTIM}, and another started under its name"


def _beheaded(hub: tailrace.Hub, consumers: Crew) -> str:
    """Kill the consumer that leads the group, and see another lead."""
    group = hub.group(GROUP)
    deadline = time.monotonic() + _TERM_S_MAX
    while (led := group.describe()).leader is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    number = consumers.number_of(int((led.leader or "process 0").split()[1]))
    assert number is not None, f"{led.leader} is none of the demo's consumers"
    killed = time.monotonic()
    consumers.replace(number)
    while group.describe().term in (None, led.term) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    took_s = time.monotonic() - killed
    return f"  kill -9: consumer {number}, the group's leader; another leads {took_s:.1f} s later"
