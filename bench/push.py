"""Pushing Python objects, many at once and one by one through a pipelined producer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import tailrace
from bench import payloads
from bench.measure import OURS, Scale, Timed, Timer, Turn, take_turns
from bench.peers import lmdb, redis, sqlite
from bench.report import Goal, Row, Sense, against, figures_of, information
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.backend.embedded.identity import SETTLED_NS, HubIdentity
from tailrace.backend.embedded.layout import RESERVE_BYTES
from tailrace.backend.embedded.locks import Locks

MANY = 1_000
VALUE_BYTES = 100
STRUCT_LOOP = "struct loop"
REDIS = "Redis Streams"
SQLITE = "SQLite"
LMDB = "LMDB"
CHECK = "the check alone"
REPLACED = "the stat that the check replaced"
VALUE = b"x" * VALUE_BYTES
PIPELINED_RATE = 200_000

BYTES_REASON = (
    "half of the time is taking 1000 pairs apart, checking and encoding them; offsets, checksum,"
    " positions and the commit, which the loop has not, are most of the other half"
)
STRUCTS_REASON = (
    "each value is decoded again before it is stored, to be sure that its readers can; the loop"
    " only encodes. The rest is as with bytes"
)
PIPELINED_REASON = (
    "what is left of a push is Python of its own: its checks, the batch, its future and the clock"
    " are two thirds of the time, encoding and committing the rest"
)


class Order(msgspec.Struct):
    """A typical value: about 100 bytes of JSON."""

    id: int
    customer: str
    total: float
    note: str


def rows(scale: Scale) -> list[Row]:
    """Measure pushes."""
    values = payloads.pairs(MANY, VALUE_BYTES)
    orders = [
        (key, Order(number, key.decode(), number / 8, "x" * 42))
        for number, (key, _) in enumerate(values)
    ]
    return [
        _many(scale, "bytes of 100 B", bytes, values, lambda messages: messages, BYTES_REASON),
        _many(scale, "structs of 100 B as JSON", Order, orders, _encoded, STRUCTS_REASON),
        _pipelined(scale),
        _identity(scale),
    ]


def _many(
    scale: Scale,
    what: str,
    kind: Any,
    messages: list[tuple[bytes, Any]],
    encode: Callable[[list[tuple[bytes, Any]]], list[tuple[bytes, bytes]]],
    reason: str,
) -> Row:
    work = f"push_many of 1000 {what}, one partition, no sync"
    calls = scale.count(200)

    def ours(directory: Path, timer: Timer) -> int:
        with _opened(directory, "none") as hub:
            topic = hub.create_topic("log", kind, partitions=1)
            topic.push_many(messages)
            with timer.running():
                for _ in range(calls):
                    topic.push_many(messages)
        return calls * MANY

    def struct_loop(directory: Path, timer: Timer) -> int:
        with (directory / "plain.log").open("wb", buffering=0) as file, timer.running():
            for number in range(calls):
                records = payloads.struct_records(encode(messages), number * MANY)
                file.write(b"".join(records))
        return calls * MANY

    rates = take_turns(work, {OURS: ours, STRUCT_LOOP: struct_loop}, scale.rounds, Timed.CPU)
    return Row(
        work, figures_of(rates, "messages"), (against(rates, STRUCT_LOOP, 1.0, reason=reason),)
    )


def _encoded(messages: list[tuple[bytes, Any]]) -> list[tuple[bytes, bytes]]:
    encode = msgspec.json.Encoder().encode
    return [(key, encode(order)) for key, order in messages]


def _pipelined(scale: Scale) -> Row:
    work = "pipelined producer.push, 100 B, no sync"
    messages = payloads.pairs(scale.count(200_000), VALUE_BYTES)
    contenders: dict[str, Turn] = {
        OURS: producing(messages),
        SQLITE: _inserting(messages),
        LMDB: _putting(messages),
    }
    if redis.available():
        contenders[REDIS] = _adding(messages)
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    goals = [Goal("pushes", rates.median(OURS), PIPELINED_RATE, unit="/s")]
    if REDIS in contenders:
        goals.append(against(rates, REDIS, 10, reason=PIPELINED_REASON))
    figures = (*figures_of(rates, "messages"), *information(rates, SQLITE, LMDB))
    missing = () if REDIS in contenders else (redis.HOW_TO_GET_IT,)
    return Row(work, figures, tuple(goals), missing)


def _identity(scale: Scale) -> Row:
    work = "single push, 100 B, one partition, no sync; its check that the hub was not replaced"
    pushes = scale.count(5_000)

    def ours(directory: Path, timer: Timer) -> int:
        with _opened(directory, "none") as hub:
            topic = hub.create_topic("log", bytes, partitions=1)
            topic.push(b"first")
            with timer.running():
                for _ in range(pushes):
                    topic.push(VALUE)
        return pushes

    def check(directory: Path, timer: Timer) -> int:
        with _opened(directory, "none") as hub:
            hub.create_topic("log", bytes, partitions=1).push(b"first")
            assert isinstance(hub.backend, EmbeddedBackend)
            made = directory / "hub"
            identity = HubIdentity(made, hub.backend.info.hub_id)
            locks = Locks(made / "hub.lock", made / "hub.commit")
            time.sleep(2 * SETTLED_NS / 1e9)
            identity.check()
            with timer.running():
                for _ in range(20 * pushes):
                    identity.check()
                    assert not locks.are_removed
            locks.close()
        return 20 * pushes

    def replaced(directory: Path, timer: Timer) -> int:
        with _opened(directory, "none"):
            reserve = str(directory / "hub" / "hub.reserve")
            with timer.running():
                for _ in range(20 * pushes):
                    assert os.stat(reserve).st_size == RESERVE_BYTES
        return 20 * pushes

    contenders: dict[str, Turn] = {OURS: ours, CHECK: check, REPLACED: replaced}
    rates = take_turns(work, contenders, scale.rounds, Timed.CPU)
    added = rates.ratio(OURS, CHECK) - rates.ratio(OURS, REPLACED)
    share = Goal("share of the push that the check adds", added, 0.02, Sense.AT_MOST, "")
    return Row(work, figures_of(rates, "calls"), (share,))


def producing(messages: list[tuple[bytes, bytes]], sync: str = "none") -> Turn:
    """Turns of a producer that pushes messages one by one to 4 partitions, and flushes."""

    def turn(directory: Path, timer: Timer) -> int:
        with _opened(directory, sync) as hub:
            topic = hub.create_topic("log", bytes)
            with topic.producer() as producer:
                producer.push(b"first").result()
                push = producer.push
                with timer.running():
                    for key, value in messages:
                        push(value, key=key)
                    producer.flush()
        return len(messages)

    return turn


def _adding(messages: list[tuple[bytes, bytes]]) -> Turn:
    # A quarter is enough for a rate, and keeps the turns of all about as long.
    some = messages[: max(1, len(messages) // 4)]

    def turn(directory: Path, timer: Timer) -> int:
        with redis.opened(directory) as server:
            before = server.cpu_seconds()
            with timer.running():
                redis.add(server.client, some)
            # A pipeline's client waits while the server works, so their times add up.
            timer.seconds += server.cpu_seconds() - before
        return len(some)

    return turn


def _inserting(messages: list[tuple[bytes, bytes]]) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with sqlite.opened(directory, "NORMAL") as connection, timer.running():
            execute = connection.execute
            for start in range(0, len(messages), MANY):
                execute("BEGIN IMMEDIATE")
                for key, value in messages[start : start + MANY]:
                    execute(sqlite.INSERT, (payloads.TIMESTAMP_MS, key, value))
                execute("COMMIT")
        return len(messages)

    return turn


def _putting(messages: list[tuple[bytes, bytes]]) -> Turn:
    def turn(directory: Path, timer: Timer) -> int:
        with lmdb.opened(directory) as environment, timer.running():
            for start in range(0, len(messages), MANY):
                lmdb.put(environment, messages[start : start + MANY], start)
        return len(messages)

    return turn


def _opened(directory: Path, sync: str) -> tailrace.Hub:
    return tailrace.open(directory / "hub", sync=sync, settings=tailrace.HubSettings())
