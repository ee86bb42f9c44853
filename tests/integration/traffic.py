"""Random transactions of a child that is killed, and the audit of the hub afterwards.

The value of each record has its transaction, its number in it, and the number of records of the
transaction. So the audit needs only the reports of the child and the stored records.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tailrace.backend.contract import Change, StorageTopic, Transaction
from tailrace.backend.embedded import EmbeddedBackend, folding, writer
from tailrace.errors import Conflict, Sealed
from tailrace.log.record import Record
from tailrace.message import Partition, Range
from tests.support.processes import Report
from tests.support.records import read, record

PARTITIONS = 12
POINTER = "pointer"
FOLD_ABOVE, FOLD_COUNT = 3, 2
SEGMENT_BYTES = (64, 300, 4096)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A run of random appends, transactions over all partitions, and switches, by `threads`."""

    directory: Path
    sync: str
    seed: int
    segment_bytes: int
    threads: int = 1
    kill_at: str | None = None
    """The point of an append, after the first few transactions, at which the child kills itself."""


class Begun(NamedTuple):
    """A transaction is about to be committed."""

    transaction: str


class StoredDefinition(NamedTuple):
    """The commit of a transaction has returned."""

    transaction: str
    ranges: list[Range]


class Switched(NamedTuple):
    """A switch to this storage topic has returned."""

    storage: int


def storage_topic(number: int) -> StorageTopic:
    """Return a storage topic by number."""
    return StorageTopic("orders", number, PARTITIONS)


def make_hub(directory: Path, sync: str) -> None:
    """Create a hub with the first storage topic."""
    backend = EmbeddedBackend.open(directory, sync=sync)
    backend.store.commit(Change(writes={POINTER: b"0"}, create=(storage_topic(0),)))
    backend.close()


def fold_early() -> None:
    """Let this process fold after a few batches."""
    setattr(writer, "FOLD_ABOVE", FOLD_ABOVE)  # noqa: B010
    folding.FOLD_COUNT = FOLD_COUNT


def run(report: Report, traffic: Traffic) -> None:
    """Run transactions in the child until it is killed."""
    fold_early()
    armed = threading.Event()

    def reach(point: str) -> None:
        if point == traffic.kill_at and armed.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    report("started")
    backend = EmbeddedBackend.open(
        traffic.directory, segment_bytes=traffic.segment_bytes, reach=reach
    )
    lock = threading.Lock()

    def send(what: Begun | StoredDefinition | Switched) -> None:
        with lock:
            report(what)

    workers = [
        threading.Thread(target=_work, args=(backend, traffic, number, armed, send))
        for number in range(traffic.threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _work(
    backend: EmbeddedBackend, traffic: Traffic, number: int, armed: threading.Event, send: Report
) -> None:
    chance = random.Random(f"{traffic.seed}-{number}")
    count = 0
    while True:
        count += 1
        if count == 4:
            armed.set()
        if traffic.kill_at is None and chance.random() < 0.05:
            with suppress(Conflict):
                send(Switched(switch(backend)))
            continue
        name = f"{traffic.seed}-{number}-{count}"
        send(Begun(name))
        with suppress(Sealed):
            send(StoredDefinition(name, backend.commit(_transaction(backend, name, chance))))


def switch(backend: EmbeddedBackend) -> int:
    """Seal the current storage topic, create the next, and return its number."""
    pointer = backend.store.get(POINTER)
    assert pointer is not None
    assert pointer.value is not None
    old = int(pointer.value)
    backend.store.commit(
        Change(
            expect={POINTER: pointer.version},
            writes={POINTER: b"%d" % (old + 1)},
            seal=(storage_topic(old),),
            create=(storage_topic(old + 1),),
        )
    )
    return old + 1


def _transaction(backend: EmbeddedBackend, name: str, chance: random.Random) -> Transaction:
    storage = current_storage(backend)
    wide = chance.random() < 0.3
    numbers = range(PARTITIONS) if wide else [chance.randrange(3)]
    counts = [chance.randint(1, 3) for _ in numbers]
    total = sum(counts)
    values = iter(
        b"%s:%d:%d:%s" % (name.encode(), index, total, b"." * chance.randrange(60))
        for index in range(total)
    )
    return Transaction(
        tuple(
            (
                Partition("orders", storage, number),
                tuple(record(next(values), key=b"k") for _ in range(count)),
            )
            for number, count in zip(numbers, counts, strict=True)
        )
    )


def current_storage(backend: EmbeddedBackend) -> int:
    """Return the number of the storage topic that takes appends."""
    pointer = backend.store.get(POINTER)
    assert pointer is not None
    assert pointer.value is not None
    return int(pointer.value)


@dataclass(slots=True)
class Audit:
    """The outcomes reported to children over the life of a hub, against its contents."""

    stored: dict[str, list[Range]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    switched: int = 0
    seen: dict[tuple[Partition, int], bytes] = field(default_factory=dict)

    def record(self, reports: Iterable[object]) -> None:
        """Record the reports of a child."""
        for report in reports:
            match report:
                case Begun(name):
                    self.begun.add(name)
                case StoredDefinition(name, ranges):
                    self.stored[name] = ranges
                case Switched(storage):
                    self.switched = max(self.switched, storage)

    def violations(self, backend: EmbeddedBackend) -> Iterator[str]:
        """Yield every violation, as text."""
        held = self._read_all(backend)
        for place, value in self.seen.items():
            if held.get(place) != value:
                yield f"{place} was {value!r} and is {held.get(place)!r}"
        self.seen = held
        transactions: dict[str, dict[int, tuple[Partition, int]]] = defaultdict(dict)
        totals = {}
        for place, value in held.items():
            name, index, total, _ = value.decode().split(":")
            if int(index) in transactions[name]:
                yield f"record {index} of {name} is stored twice"
            transactions[name][int(index)] = place
            totals[name] = int(total)
        for name, found in transactions.items():
            if len(found) != totals[name]:
                yield f"{name} is stored in part: {len(found)} of {totals[name]}"
            if name not in self.begun:
                yield f"{name} was never begun"
        for name, ranges in self.stored.items():
            places = [
                (landed.partition, offset)
                for landed in ranges
                for offset in range(landed.start, landed.end)
            ]
            if list(transactions[name].items()) and places != [
                transactions[name].get(index) for index in range(totals[name])
            ]:
                yield f"{name} is not at its reported position"
            if not transactions[name]:
                yield f"{name} is lost"
        yield from self._switch_violations(backend)

    def _read_all(self, backend: EmbeddedBackend) -> dict[tuple[Partition, int], bytes]:
        held: dict[tuple[Partition, int], bytes] = {}
        for storage in range(current_storage(backend) + 1):
            for number in range(PARTITIONS):
                partition = Partition("orders", storage, number)
                found: list[Record] = read(backend, partition)
                offsets = [row.offset for row in found]
                assert offsets == sorted(set(offsets)), f"{partition} is out of order"
                held |= {(partition, row.offset): row.value for row in found}
        return held

    def _switch_violations(self, backend: EmbeddedBackend) -> Iterator[str]:
        current = current_storage(backend)
        if current < self.switched:
            yield f"the switch to storage {self.switched} is lost"
        for storage in range(current + 1):
            sealed = {bounds.sealed for bounds in backend.log.bounds_of(storage_topic(storage))}
            if sealed != {storage < current}:
                yield f"storage {storage} of {current} is sealed: {sealed}"

    def append_everywhere(self, backend: EmbeddedBackend, name: str) -> None:
        """Append to every partition."""
        storage = current_storage(backend)
        for number in range(PARTITIONS):
            single = f"{name}-{number}"
            self.begun.add(single)
            self.stored[single] = backend.commit(
                Transaction(
                    (
                        (
                            Partition("orders", storage, number),
                            (record(f"{single}:0:1:".encode()),),
                        ),
                    )
                )
            )
