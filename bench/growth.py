"""Growth of cost with the backlog: one hub with few messages, compared with one with many."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median

import tailrace
from bench.measure import Scale, Timed, Timer, Turn, say, take_turns
from bench.report import Goal, Row, Sense, figures_of, quantity

FEW = 1_000
VALUE = bytes(100)
GROWTH_MAX = 1.3
ROUNDS = 5
PUSHERS = 32
SAY_EVERY = 100_000

Use = Callable[["tailrace.Topic[bytes]", int], None]


def rows(scale: Scale) -> list[Row]:
    """Measure the growth of cost."""
    many = scale.growth_pushes
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        backlogs = {FEW: Path(directory) / "few", many: Path(directory) / "many"}
        grown_bytes = [_fill(path, count) for count, path in backlogs.items()][-1]
        # Reads first, and few pushes, so that the small backlog stays small.
        turns: dict[str, Callable[[Path], Turn]] = {
            "read one": lambda path: _using(path, _read, 500),
            "consume one, its acknowledgement awaited,": lambda path: _consuming(path, 500),
            "push": lambda path: _using(path, _push, 200),
        }
        found = [
            _growth(f"{verb} at a backlog of {many:,} single pushes", backlogs, turn)
            for verb, turn in turns.items()
        ]
        return [*found, _size(backlogs[many], many, grown_bytes)]


def _fill(path: Path, count: int) -> int:
    """Push a number of messages one by one, and return the growth of this process in bytes.

    Several threads push, which takes less time and leaves the same: a batch for every message.
    """
    with _opened(path) as hub, ThreadPoolExecutor(PUSHERS) as pool:
        topic = hub.create_topic("log", bytes, partitions=1)
        _push(topic, FEW)
        before = _resident_bytes()
        for pushed in range(FEW, count, SAY_EVERY):
            turn = min(SAY_EVERY, count - pushed) // PUSHERS
            list(pool.map(lambda times: _push(topic, times), [turn] * PUSHERS))
            say(f"cost growth: {pushed + turn * PUSHERS:,} of {count:,} pushed")
        return _resident_bytes() - before


def _growth(work: str, backlogs: dict[int, Path], turn: Callable[[Path], Turn]) -> Row:
    names = [f"at {count:,}" for count in backlogs]
    turns = map(turn, backlogs.values())
    rates = take_turns(work, dict(zip(names, turns, strict=True)), ROUNDS, Timed.CPU)
    few, many = names
    goal = Goal(f"cost against {few[3:]}", rates.ratio(few, many), GROWTH_MAX, Sense.AT_MOST)
    return Row(work, figures_of(rates, "calls"), (goal,))


def _using(path: Path, use: Use, times: int) -> Turn:
    def turn(_directory: Path, timer: Timer) -> int:
        with _opened(path) as hub:
            topic = hub.topic("log", bytes)
            use(topic, 10)
            with timer.running():
                use(topic, times)
        return times

    return turn


def _consuming(path: Path, times: int) -> Turn:
    """Return a turn of a new group that starts before the backlog."""

    def turn(_directory: Path, timer: Timer) -> int:
        group = f"bench-{secrets.token_hex(4)}"
        with (
            _opened(path) as hub,
            hub.topic("log", bytes).tail(group=group, ack="manual") as consumer,
        ):
            following = iter(consumer)
            _consume(following, 10)
            with timer.running():
                _consume(following, times)
        return times

    return turn


def _consume(deliveries: Iterator[tailrace.Delivery[bytes]], times: int) -> None:
    for delivery in islice(deliveries, times):
        assert delivery.data == VALUE
        delivery.ack(wait=True)


def _push(topic: tailrace.Topic[bytes], times: int) -> None:
    for _ in range(times):
        topic.push(VALUE)


def _read(topic: tailrace.Topic[bytes], times: int) -> None:
    [storage] = topic.storage_topics
    step = max(1, storage.ends[0] // times)
    for number in range(times):
        assert topic.read(0, 0, number * step % storage.ends[0]).data == VALUE


def _size(path: Path, count: int, grown_bytes: int) -> Row:
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with _opened(path) as hub:
            hub.topic("log", bytes).push(VALUE)
        seconds.append(time.perf_counter() - start)
    database = (path / "hub.db").stat().st_size
    figures = (
        f"open, push and close {median(seconds) * 1000:.1f} ms",
        f"hub.db {quantity(database)}B, its WAL {quantity((path / 'hub.db-wal').stat().st_size)}B",
    )
    goals = (
        Goal("open, push and close", median(seconds), 1.0, Sense.AT_MOST, " s"),
        Goal("hub.db", database, 4e6, Sense.AT_MOST, "B"),
        Goal("memory taken by the pushes", grown_bytes, 32e6, Sense.AT_MOST, "B"),
    )
    return Row(f"a hub with {count:,} single pushes", figures, goals)


def _opened(path: Path) -> tailrace.Hub:
    return tailrace.open(path, sync="none", settings=tailrace.HubSettings())


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
