"""Any sequence of calls against a model: lists for the log, dicts for the table and the store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.backend.contract import (
    FENCES,
    Change,
    Entry,
    Fence,
    Records,
    StorageTopic,
    TableKey,
    Transaction,
)
from tailrace.errors import Conflict, Fenced, Sealed, UnknownTopic
from tailrace.log.columns import encode
from tailrace.log.record import Record, decode_records
from tailrace.message import Partition, Range
from tests.support.backends import KINDS, is_durable, open_backend
from tests.support.counts import count
from tests.support.records import columns, commit, read, record

STORAGES = (StorageTopic("t", 0, 2), StorageTopic("t", 1, 1), StorageTopic("u", 0, 1))
FENCE_NAMES = ("f", "g")


def partitions_of(storage: StorageTopic) -> list[Partition]:
    return [Partition(storage.topic, storage.storage, i) for i in range(storage.partitions)]


storages = st.sampled_from(STORAGES)
partitions = st.sampled_from([each for storage in STORAGES for each in partitions_of(storage)])
rows = st.builds(
    record,
    st.binary(max_size=40),
    st.none() | st.binary(min_size=1, max_size=3),
    st.none() | st.dictionaries(st.text(max_size=2), st.binary(max_size=2), min_size=1, max_size=2),
)
batches = st.lists(rows, min_size=1, max_size=4).map(tuple) | st.lists(
    rows, min_size=1, max_size=80
).map(columns)
table_keys = st.builds(
    TableKey, st.sampled_from(["x", "y"]), st.sampled_from([b"", b"a", b"b", b"\xff"])
)
store_keys = st.sampled_from(["a", "a/b", "a/c", "b"])
contents = st.none() | st.binary(max_size=5)


class HubModel(RuleBasedStateMachine):
    """A backend and the state it should have. Offsets are those that the backend assigns."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory(prefix="tailrace-contract-")
        self.directory = Path(self.scratch.name) / "hub"
        self.backend = open_backend(self.kind, self.directory)
        self.log: dict[Partition, list[Record]] = {}
        self.sealed: set[Partition] = set()
        self.table: dict[TableKey, bytes] = {}
        self.store: dict[str, Entry] = {}
        self.removed: dict[str, Entry] = {}
        self.version = 0

    def teardown(self) -> None:
        self.backend.close()
        self.scratch.cleanup()

    @initialize()
    def create(self) -> None:
        self._change(Change(writes={FENCES + FENCE_NAMES[0]: b""}, create=STORAGES[:2]))

    @precondition(lambda self: self.log.keys() > self.sealed)
    @rule(data=st.data(), batch=batches)
    def append(self, data: st.DataObject, batch: Records) -> None:
        """Make an append that nothing refuses."""
        partition = data.draw(st.sampled_from(sorted(self.log.keys() - self.sealed)), "partition")
        appends = ((partition, batch),)
        self._note(appends, commit(self.backend, Transaction(appends)))

    @rule(
        appends=st.lists(st.tuples(partitions, batches), max_size=3).map(tuple),
        writes=st.dictionaries(table_keys, contents, max_size=3),
        absent=st.lists(table_keys, max_size=1).map(tuple),
        fence_name=st.none() | st.sampled_from(FENCE_NAMES),
        behind=st.sampled_from([0, 0, 0, 1]),
    )
    def commit(
        self,
        appends: tuple[tuple[Partition, Records], ...],
        writes: dict[TableKey, bytes | None],
        absent: tuple[TableKey, ...],
        fence_name: str | None,
        behind: int,
    ) -> None:
        """Make any transaction. The model alone decides first which error must refuse it."""
        fence = None if fence_name is None else Fence(fence_name, self._epoch(fence_name) - behind)
        refusals: set[type[Exception]] = set()
        if fence is not None and (behind or not fence.epoch):
            refusals.add(Fenced)
        if any(partition not in self.log for partition, _ in appends):
            refusals.add(UnknownTopic)
        if any(partition in self.sealed for partition, _ in appends):
            refusals.add(Sealed)
        if any(key in self.table for key in absent):
            refusals.add(Conflict)
        transaction = Transaction(appends, writes, fence, absent)
        if refusals:
            with pytest.raises(tuple(refusals)):
                self.backend.commit(transaction)
            return
        self._note(appends, commit(self.backend, transaction))
        for key, value in writes.items():
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    @rule(
        writes=st.dictionaries(store_keys, contents, max_size=3),
        expected=st.lists(store_keys, max_size=2),
        wrong=st.none() | store_keys,
        storage=st.none() | storages,
        what=st.sampled_from(["create", "create", "seal", "delete"]),
    )
    def change(
        self,
        writes: dict[str, bytes | None],
        expected: list[str],
        wrong: str | None,
        storage: StorageTopic | None,
        what: str,
    ) -> None:
        """Make any change, with right expectations and perhaps a wrong one."""
        expect = {key: self._version_of(key) for key in expected}
        if wrong is not None:
            expect[wrong] = self.version + 1
        touched = {} if storage is None else {what: (storage,)}
        known = storage is not None and partitions_of(storage)[0] in self.log
        refusals: set[type[Exception]] = set()
        if wrong is not None or (known and what == "create"):
            refusals.add(Conflict)
        if storage is not None and not known and what != "create":
            refusals.add(UnknownTopic)
        change = Change(
            expect,
            writes,
            create=touched.get("create", ()),
            seal=touched.get("seal", ()),
            delete=touched.get("delete", ()),
        )
        if refusals:
            with pytest.raises(tuple(refusals)):
                self.backend.store.commit(change)
        else:
            self._change(change)

    @rule(name=st.sampled_from(FENCE_NAMES))
    def raise_fence(self, name: str) -> None:
        self._change(Change(writes={FENCES + name: b""}))

    @precondition(lambda self: is_durable(self.kind))
    @rule()
    def reopen(self) -> None:
        self.backend.close()
        self.backend = open_backend(self.kind, self.directory)

    @rule(partition=partitions, bytes_max=st.integers(1, 200), data=st.data())
    def read_a_range(self, partition: Partition, bytes_max: int, data: st.DataObject) -> None:
        if partition not in self.log:
            with pytest.raises(UnknownTopic):
                self.backend.log.bounds(partition)
            return
        first, end, sealed = self.backend.log.bounds(partition)
        assert sealed == (partition in self.sealed)
        start = data.draw(st.integers(first, end), "start")
        stop = data.draw(st.none() | st.integers(start, end + 2), "stop")
        expected = [
            row
            for row in self.log[partition]
            if start <= row.offset and (stop is None or row.offset < stop)
        ]
        assert read(self.backend, partition, start, stop, bytes_max) == expected

    @rule(after=st.integers(0, 10), prefix=st.sampled_from(["", "a", "a/"]))
    def watch(self, after: int, prefix: str) -> None:
        since = max(0, self.version - after)
        changed = [
            entry
            for entry in (*self.store.values(), *self.removed.values())
            if entry.version > since and entry.key.startswith(prefix)
        ]
        watched = self.backend.store.watch(prefix, since)
        assert [entry.version for entry in watched] == sorted(entry.version for entry in changed)
        assert {entry.key: entry for entry in watched} == {entry.key: entry for entry in changed}

    @invariant()
    def everything_is_there(self) -> None:
        for partition, expected in self.log.items():
            assert read(self.backend, partition) == expected
        for table in ("x", "y"):
            expected_rows = sorted((k, v) for (t, k), v in self.table.items() if t == table)
            assert self.backend.table.scan(table) == expected_rows
        assert self.backend.store.scan("") == sorted(self.store.values())

    def _epoch(self, name: str) -> int:
        return self._version_of(FENCES + name)

    def _version_of(self, key: str) -> int:
        return self.store[key].version if key in self.store else 0

    def _note(self, appends: tuple[tuple[Partition, Records], ...], ranges: list[Range]) -> None:
        assert [landed.partition for landed in ranges] == [partition for partition, _ in appends]
        for (partition, appended), landed in zip(appends, ranges, strict=True):
            held = self.log[partition]
            rows = decode_records(encode(appended).data)
            assert landed.count == len(rows)
            assert not held or landed.start > held[-1].offset
            held += [row._replace(offset=landed.start + i) for i, row in enumerate(rows)]

    def _change(self, change: Change) -> None:
        version = self.backend.store.commit(change)
        assert version > self.version
        self.version = version
        for key, value in change.writes.items():
            existed = self.store.pop(key, None)
            if value is not None:
                self.store[key] = Entry(key, value, version)
                self.removed.pop(key, None)
            elif existed is not None:
                self.removed[key] = Entry(key, None, version)
        for storage in change.create:
            self.log |= {partition: [] for partition in partitions_of(storage)}
        for storage in change.seal:
            self.sealed.update(partitions_of(storage))
        for storage in change.delete:
            for partition in partitions_of(storage):
                del self.log[partition]
                self.sealed.discard(partition)


@pytest.mark.parametrize("kind", KINDS)
def test_any_sequence_of_calls_leaves_the_state_of_the_model(kind: str) -> None:
    run_state_machine_as_test(
        type("HubModel", (HubModel,), {"kind": kind}),
        settings=settings(
            max_examples=count("model runs", test=20, soak=500),
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
