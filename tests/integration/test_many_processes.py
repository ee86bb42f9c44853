"""Many processes on one hub: order per key, no record after a seal, no commit missed, no process
starved."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tailrace
from tailrace.backend.contract import Backend, Change, Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.log.schema import import_pandas_now
from tailrace.message import Partition
from tailrace.topic import reading
from tests.support.counts import count, soaking
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report
from tests.support.records import P0, create, records

pytestmark = pytest.mark.part("processes")

PRODUCERS, READERS = 8, 4
KEYS = 25
"""The number of keys of each producer. No other producer pushes them."""

COUNTS = (12, 8, 4)
"""The partition counts that the topic is scaled to, in turn."""

WAL_BYTES_MAX = 100 * 2**20
QUIET_S = 5.0
"""How long a follower waits before a commit that did not wake it counts as missed."""

LOCK_TIMEOUT_S = 10.0
TURN_S = 90.0
"""How long a process may take for its appends among all the others, on a busy machine."""

DONE = "done"
GO = "go"


def _await_entry(backend: Backend, key: str) -> None:
    """Wait for a store entry, so that children start together."""
    with closing(backend.follower()) as follower:
        follower.arm()
        while backend.store.get(key) is None:
            follower.wait(QUIET_S)
            follower.arm()


def _announce(backend: Backend, key: str) -> None:
    backend.store.commit(Change(writes={key: b""}))


def _produce(report: Report, directory: Path, name: str, seconds: float) -> None:
    """Child: push the numbers 0, 1, 2 … of each of its keys, by every kind of push."""
    with tailrace.open(directory) as hub:
        topic = hub.topic("jobs", bytes)
        pushed = dict.fromkeys((f"{name}-{key}" for key in range(KEYS)), 0)
        keys = list(pushed)

        def following(size: int, first: int) -> list[tuple[str | bytes | None, bytes]]:
            pairs: list[tuple[str | bytes | None, bytes]] = []
            for i in range(size):
                key = keys[(first + i * i) % KEYS]
                pairs.append((key, b"%d" % pushed[key]))
                pushed[key] += 1
            return pairs

        import_pandas_now()  # It may take seconds, which are not part of the time below.
        report("ready")
        _await_entry(hub.backend, GO)
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            [(key, value)] = following(1, number)
            topic.push(value, key=key)
            topic.push_many(following(number % 20 + 1, number))
            pairs = following(100, number)
            keyed, values = zip(*pairs, strict=True)
            topic.append(pa.RecordBatch.from_pydict({"key": list(keyed), "value": list(values)}))
            with topic.producer(linger="0s", batch_bytes=200) as producer:
                for key, value in following(10, number):
                    producer.push(value, key=key)
            number += 1
        report({key: count for key, count in pushed.items() if count})


class _Seal(NamedTuple):
    """The end offsets of a storage topic, read right after it was sealed."""

    storage: int
    ends: list[int]


def _scale(report: Report, directory: Path, switches: int, seconds: float) -> None:
    """Child: scale the topic at even intervals."""
    with tailrace.open(directory) as hub:
        topic = hub.topic("jobs", bytes)
        report("ready")
        _await_entry(hub.backend, GO)
        for number in range(switches):
            topic.scale(COUNTS[number % len(COUNTS)])
            sealed = topic.storage_topics[number]
            assert sealed.sealed
            report(_Seal(number, sealed.ends))
            time.sleep(seconds / switches)


class _Seen(NamedTuple):
    """The number of messages of each key that a reader has seen, and the violations."""

    counts: dict[str, int]
    violations: list[str]


class _Reader:
    """Reads in lineage order, and checks that each key's numbers and each partition's offsets come
    without a gap."""

    def __init__(self, topic: tailrace.Topic[bytes]) -> None:
        self._reader = topic.reader()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._offsets: defaultdict[Partition, int] = defaultdict(int)
        self.violations: list[str] = []

    def read_all(self) -> bool:
        """Read all records. True if there were any."""
        found = False
        while reads := self._reader.poll():
            found = True
            for partition, rows in reads:
                self._check(partition, rows.to_pydict())
        return found

    def _check(self, partition: Partition, rows: dict[str, list[Any]]) -> None:
        end = self._offsets[partition]
        self._offsets[partition] = end + len(rows["offset"])
        if rows["offset"] != list(range(end, self._offsets[partition])):
            self.violations.append(f"{partition} continued with {rows['offset'][0]}, not {end}")
        for key, value in zip(map(bytes.decode, rows["key"]), map(int, rows["value"]), strict=True):
            if value != self._counts[key]:
                self.violations.append(f"{key} continued with {value}, not {self._counts[key]}")
            self._counts[key] += 1

    def seen(self) -> _Seen:
        """Return the counts and violations so far."""
        return _Seen(dict(self._counts), self.violations)


def _follow(report: Report, directory: Path) -> None:
    """Child: read all records and wait for more, until all are read."""
    with tailrace.open(directory) as hub, closing(hub.backend.follower()) as follower:
        reader = _Reader(hub.topic("jobs", bytes))
        report("ready")
        done = False
        while not done:
            follower.arm()
            done = hub.backend.store.get(DONE) is not None
            reader.read_all()
            if done or follower.wait(QUIET_S):
                continue
            # All was read. If there is a record now, its producer is about to report it.
            if reader.read_all() and not follower.wait(QUIET_S):
                reader.violations.append("a commit woke no follower")
        report(reader.seen())


@pytest.mark.timeout(300)
def test_order_per_key_holds_for_many_producers_and_readers_while_the_topic_is_scaled(
    tmp_path: Path, record_evidence: RecordEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count("scaling_seconds", test=5, soak=30)
    switches = count("switches", test=9, soak=30)
    with tailrace.open(tmp_path, sync="none") as hub:
        topic = hub.create_topic("jobs", bytes, partitions=4)
        producers = [Child(_produce, tmp_path, f"p{n}", float(seconds)) for n in range(PRODUCERS)]
        readers = [Child(_follow, tmp_path) for _ in range(READERS)]
        scaler = Child(_scale, tmp_path, switches, float(seconds))
        assert {child.next_report() for child in (*producers, *readers, scaler)} == {"ready"}
        _announce(hub.backend, GO)
        pushed = {key: n for child in producers for key, n in child.next_report().items()}
        seals = list(scaler.rest())
        _announce(hub.backend, DONE)
        seen = [child.next_report() for child in readers]
        # A late reader, which reads everything in small batches.
        monkeypatch.setattr(reading, "READ_BYTES", 2048)
        late = _Reader(topic)
        late.read_all()
        seen.append(late.seen())
        after = topic.storage_topics
    violations = [violation for each in seen for violation in each.violations]
    violations += ["a reader has not seen all" for each in seen if each.counts != pushed]
    violations += [
        f"storage topic {seal.storage} was appended to behind its seal"
        for seal in seals
        if not after[seal.storage].sealed or after[seal.storage].ends != seal.ends
    ]
    record_evidence(
        "processes", "messages ordered over switches", sum(pushed.values()), [], len(violations)
    )
    wal_bytes = (tmp_path / "hub.db-wal").stat().st_size  # the most it ever had: it never shrinks
    print(f"{sum(pushed.values()):,} messages over {switches} switches, WAL {wal_bytes:,} bytes")
    assert violations == []
    assert len(seals) == switches
    assert sum(any(storage.ends) for storage in after) >= switches // 2
    assert wal_bytes < WAL_BYTES_MAX


class _Share(NamedTuple):
    """The number of appends of one process, and the longest time of one."""

    appends: int
    longest_s: float


def _append_in_a_crowd(report: Report, directory: Path, enough: int) -> None:
    """Child: append to the partition that all append to, until all have done so often enough."""
    with closing(EmbeddedBackend.open(directory)) as backend:
        transaction = Transaction(((P0, records(b"x" * 100)),))
        report("ready")
        _await_entry(backend, GO)
        appends, longest_s = 0, 0.0
        while backend.store.get(DONE) is None:
            begun = time.monotonic()
            backend.commit(transaction)
            longest_s = max(longest_s, time.monotonic() - begun)
            appends += 1
            if appends == enough:
                report("enough")
        report(_Share(appends, longest_s))


@pytest.mark.parametrize("sync", ["none", "batch"])
def test_of_many_processes_that_append_to_one_partition_none_is_starved(
    sync: str, tmp_path: Path
) -> None:
    enough = count("crowd_appends", test=20, soak=500)
    with closing(EmbeddedBackend.open(tmp_path, sync=sync)) as backend:
        create(backend)
        children = [Child(_append_in_a_crowd, tmp_path, enough) for _ in range(PRODUCERS)]
        assert {child.next_report() for child in children} == {"ready"}
        _announce(backend, GO)
        # None of them ends before the slowest has its share.
        assert {child.next_report(TURN_S) for child in children} == {"enough"}
        _announce(backend, DONE)
        shares = [child.next_report() for child in children]
        assert backend.log.bounds(P0).end == sum(share.appends for share in shares)
    mean = statistics.mean(share.appends for share in shares)
    least, longest_s = min(shares).appends, max(share.longest_s for share in shares)
    print(f"sync={sync}: {mean:.0f} appends each, least {least}, longest {longest_s * 1000:.0f} ms")
    assert longest_s < LOCK_TIMEOUT_S
    if soaking():  # Only the soak has the machine for itself.
        assert least >= mean / 10
