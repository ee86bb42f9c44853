"""Units that are not partitions: real runtimes grant the shards of a fake source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.backend.contract import Backend, Change, Entry
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import HubClosed, UnknownGroup
from tailrace.group.protocol.events import Drained, Subscribed, Unsubscribed
from tailrace.group.protocol.times import Times
from tailrace.group.protocol.unit import Basis, Unit, UnitState
from tailrace.group.runtime.runtime import Runtime
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.unit_source import Concern, UnitSource
from tailrace.hub.hub import Hub
from tests.support.waiting import until
from tests.unit.group.runtime.scripted_runtime import RecordingSession

SHARDS = "shards/"
GROUP = "mailing"


class Shards:
    """The unit source of groups whose units are listed in a store entry ``shards/GROUP``."""

    def __init__(self, backend: Backend) -> None:
        self.forgotten: list[str] = []
        self._backend = backend

    def units(self, group: str) -> Basis:
        entry = self._entry(group)
        names = json.loads(entry.value or b"")
        units = tuple(Unit(name, UnitState.OPEN) for name in names)
        return Basis(units, ((entry.key, entry.version),))

    def forget(self, group: str) -> None:
        self.forgotten.append(group)

    def defined_by(self, group: str) -> tuple[str, int]:
        entry = self._entry(group)
        return entry.key, entry.version

    def concerns(self, entry: Entry) -> Concern | None:
        if not entry.key.startswith(SHARDS):
            return None
        group, removed = entry.key.removeprefix(SHARDS), entry.value is None
        return Concern(group, units_changed=not removed, may_have_ended=removed)

    def check(self, group: str) -> None:
        self._entry(group)

    def _entry(self, group: str) -> Entry:
        entry = self._backend.store.get(SHARDS + group)
        if entry is None:
            raise UnknownGroup(group, self._backend.name, [])
        return entry


class Member(RecordingSession):
    """A session that owns units of any kind, and drains each one as soon as it is asked to."""

    def __init__(self, name: str, group: str = GROUP) -> None:
        super().__init__(name, group)
        self.owned: dict[str, int] = {}
        self.drained: list[tuple[str, int]] = []
        self.runtime: Runtime | None = None

    def subscribe(self, runtime: Runtime, units: UnitSource | None = None) -> None:
        self.runtime = runtime
        runtime.add(self, units)
        runtime.post(Subscribed(self.id, self.group, 5.0))

    def install(self, unit: str, epoch: int) -> None:
        self.owned[unit] = epoch

    def drain(self, unit: str, epoch: int) -> None:
        assert self.runtime is not None
        self.drained.append((unit, epoch))
        self.runtime.post(Drained(self.id, unit, epoch, 0))

    def drop(self, unit: str, epoch: int) -> None:
        if self.owned.get(unit) == epoch:
            del self.owned[unit]


class ShardProcess:
    """A process of its own: a backend, a source of shards, and a runtime."""

    def __init__(self, hub: Path) -> None:
        self.backend = EmbeddedBackend.open(hub, sync="none")
        self.shards = Shards(self.backend)
        # Nothing is read again without a notice: a change is noticed by `concerns`, or never. The
        # lease is longer than a busy machine may keep a thread waiting.
        self.runtime = Runtime(self.backend, Times(lease_s=60.0, refresh_s=3600.0), 0.01)

    def list_shards(self, count: int) -> None:
        """Write which shards the group has."""
        value = json.dumps([f"shard-{number}" for number in range(count)]).encode()
        self.backend.store.commit(Change(writes={SHARDS + GROUP: value}))

    def join(self, name: str) -> Member:
        member = Member(name)
        member.subscribe(self.runtime, self.shards)
        return member

    def end(self) -> None:
        self.runtime.close(HubClosed("the test is over"))
        self.backend.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[ShardProcess]:
    process = ShardProcess(tmp_path / "hub")
    process.list_shards(4)
    yield process
    process.end()


@pytest.fixture
def two(one: ShardProcess, tmp_path: Path) -> Iterator[ShardProcess]:
    process = ShardProcess(tmp_path / "hub")
    yield process
    process.end()


def names(first: int, after: int) -> set[str]:
    return {f"shard-{number}" for number in range(first, after)}


def test_a_single_consumer_is_granted_every_shard(one: ShardProcess) -> None:
    member = one.join("a")
    until(lambda: member.owned.keys() == names(0, 4))
    assert one.runtime.until("a") > 0
    assert not member.drained


def test_a_second_process_gets_half_of_the_shards_after_the_first_drained_them(
    one: ShardProcess, two: ShardProcess
) -> None:
    first = one.join("a")
    until(lambda: len(first.owned) == 4)
    epochs = dict(first.owned)
    second = two.join("b")
    until(lambda: len(first.owned) == len(second.owned) == 2)
    assert first.owned.keys() | second.owned.keys() == names(0, 4)
    assert sorted(first.drained) == sorted((unit, epochs[unit]) for unit in second.owned)
    for unit, epoch in second.owned.items():
        assert epoch > epochs[unit]


def test_a_consumer_that_leaves_drains_its_shards_for_the_other_process(
    one: ShardProcess, two: ShardProcess
) -> None:
    first = one.join("a")
    until(lambda: len(first.owned) == 4)
    second = two.join("b")
    until(lambda: len(first.owned) == len(second.owned) == 2)
    one.runtime.post(Unsubscribed("a"))
    until(lambda: ("departed",) in first.calls and second.owned.keys() == names(0, 4))
    assert not first.owned
    until(lambda: one.shards.forgotten == [GROUP])


def test_new_shards_are_granted_as_soon_as_they_are_listed(one: ShardProcess) -> None:
    member = one.join("a")
    until(lambda: len(member.owned) == 4)
    epochs = dict(member.owned)
    one.list_shards(6)
    until(lambda: member.owned.keys() == names(0, 6))
    assert epochs.items() <= member.owned.items()
    assert not member.drained


def test_shards_that_are_no_longer_listed_are_revoked(one: ShardProcess) -> None:
    member = one.join("a")
    until(lambda: len(member.owned) == 4)
    removed = [("shard-3", member.owned["shard-3"])]
    one.list_shards(3)
    until(lambda: member.owned.keys() == names(0, 3))
    assert member.drained == removed


def test_consumers_of_a_group_that_was_removed_fail(one: ShardProcess) -> None:
    member = one.join("a")
    until(lambda: len(member.owned) == 4)
    one.backend.store.commit(Change(writes={SHARDS + GROUP: None}))
    until(lambda: isinstance(member.error, UnknownGroup))


def test_a_process_consumes_partitions_and_shards_side_by_side(one: ShardProcess) -> None:
    hub = Hub.from_backend(one.backend)
    hub.create_topic("orders", partitions=2)
    open_group(one.backend, "billing", "orders", "earliest", SystemClock())
    partitions, shards = Member("p", "billing"), one.join("a")
    partitions.subscribe(one.runtime)
    until(lambda: partitions.owned.keys() == {"orders/0.0", "orders/0.1"})
    until(lambda: len(shards.owned) == 4)
    hub.delete_topic("orders")
    until(lambda: partitions.error)
    one.list_shards(5)
    until(lambda: len(shards.owned) == 5)
    assert shards.error is None
