"""The order of streams in a group, against a naive model of the rules."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.backend.contract import Backend, TableKey, Transaction
from tailrace.group.protocol.unit import UnitState
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.seek import seek
from tailrace.group.store.streams import BasisReader, read_basis, read_streams
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.log.columns import records_of
from tailrace.message import Partition
from tailrace.testing import ManualClock, MemoryBackend
from tailrace.topic.ledger import Progress
from tailrace.topic.reading import batches_between
from tests.support.groups import GROUP, ack, ack_all, marks, states, units_in

UNITS = 1000
READ_S = 0.05


def test_a_stream_opens_when_all_streams_it_follows_are_finished(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=2)
    orders.push_many([(f"c{i}", i) for i in range(40)])
    open_group(backend, GROUP, "orders", "earliest", clock)
    orders.scale(4)
    assert units_in(backend, UnitState.OPEN) == {"orders/0.0", "orders/0.1"}
    ack_all(backend, "orders/0.1")
    assert states(backend) == {
        "orders/0.0": UnitState.OPEN,
        "orders/0.1": UnitState.FINISHED,
        "orders/1.0": UnitState.WAITING,
        "orders/1.1": UnitState.WAITING,
        "orders/1.2": UnitState.OPEN,
        "orders/1.3": UnitState.OPEN,
    }


def test_an_empty_storage_topic_passes_on_the_state_of_those_before_it(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=2)
    orders.push_many([(f"c{i}", i) for i in range(40)])
    open_group(backend, GROUP, "orders", "earliest", clock)
    orders.scale(4)
    orders.scale(8)
    assert units_in(backend, UnitState.OPEN) == {"orders/0.0", "orders/0.1"}
    ack_all(backend, "orders/0.0")
    assert units_in(backend, UnitState.FINISHED) == {"orders/0.0", "orders/1.0", "orders/1.1"}
    assert units_in(backend, UnitState.OPEN) == {"orders/0.1"} | {f"orders/2.{i}" for i in range(4)}


def test_offsets_without_a_record_count_as_acknowledged(clock: ManualClock) -> None:
    backend = MemoryBackend(gap_every=1)
    orders = Hub.from_backend(backend).create_topic("orders", partitions=1)
    offsets = [orders.push(number).offset for number in range(3)]
    open_group(backend, GROUP, "orders", "earliest", clock)
    orders.scale(2)
    for offset in offsets:
        assert units_in(backend, UnitState.OPEN) == {"orders/0.0"}
        ack(backend, "orders/0.0", offset, offset + 1)
    assert marks(backend, "orders/0.0") == [0]
    assert units_in(backend, UnitState.FINISHED) == {"orders/0.0"}
    assert units_in(backend, UnitState.OPEN) == {"orders/1.0", "orders/1.1"}


def test_a_storage_topic_that_was_added_and_not_switched_to_has_no_units(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=1)
    open_group(backend, GROUP, "orders", "earliest", clock)
    orders.add_storage_topic(2)
    assert states(backend) == {"orders/0.0": UnitState.OPEN}
    orders.switch_produce()
    assert units_in(backend, UnitState.OPEN) == {"orders/1.0", "orders/1.1"}


def test_streams_report_the_progress_of_the_group(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(None, i) for i in range(10)])
    open_group(backend, GROUP, "orders", "earliest", clock)
    end = orders.storage_topics[0].ends[0]
    ack(backend, "orders/0.0", 0, 3)
    ack(backend, "orders/0.0", 5, 7)
    [view] = read_streams(backend, GROUP)
    assert (view.partition, view.state) == (Partition("orders", 0, 0), UnitState.OPEN)
    assert (view.mark, view.bounds.end, view.lag) == (3, end, end - 5)


def test_a_reader_learns_of_a_seek_in_a_stream_it_knew_to_be_finished(
    backend: Backend, hub: Hub, clock: ManualClock
) -> None:
    orders = hub.create_topic("orders", partitions=1)
    orders.push_many([(None, i) for i in range(10)])
    orders.scale(2)
    open_group(backend, GROUP, "orders", "latest", clock)
    reader = BasisReader(backend, GROUP)
    for _ in range(2):
        assert reader.read() == read_basis(backend, GROUP)
    seek(backend, GROUP, "orders/0.0@4")
    assert [unit.state for unit in reader.read().units] == [
        UnitState.OPEN,
        UnitState.WAITING,
        UnitState.WAITING,
    ]
    assert reader.read() == read_basis(backend, GROUP)


class Model:
    """The rules, computed from all records and all acknowledged offsets."""

    def __init__(self, backend: Backend, topic: Topic[Any]) -> None:
        self.backend = backend
        self.topic = topic
        self.acked: dict[Partition, set[int]] = {}

    def states(self) -> dict[str, UnitState]:
        sealed = {
            Partition(self.topic.name, info.index, number): info.sealed
            for info in self.topic.storage_topics[: self.topic.produce_pointer + 1]
            for number in range(info.partitions)
        }

        @cache
        def is_free(where: Partition) -> bool:
            return all(is_finished(parent) for parent in self.topic.follows(where))

        @cache
        def is_finished(where: Partition) -> bool:
            return sealed[where] and is_free(where) and not self.unread(where)

        return {
            str(where): UnitState.FINISHED
            if is_finished(where)
            else UnitState.OPEN
            if is_free(where)
            else UnitState.WAITING
            for where in sealed
        }

    def unread(self, where: Partition) -> list[int]:
        found = [
            record.offset
            for batch in batches_between(self.backend.log, where, 0, None)
            for record in records_of(batch)
        ]
        return [offset for offset in found if offset not in self.acked.get(where, set())]


Step = tuple[str, int]


@settings(max_examples=60, deadline=None)
@given(
    router=st.sampled_from(["shard-consistent", "range"]),
    gap_every=st.sampled_from([0, 1, 3]),
    first=st.integers(1, 4),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["push", "scale", "add", "ack", "ack", "drain", "drain", "seek"]),
            st.integers(0, 1000),
        ),
        min_size=20,
        max_size=40,
    ),
)
def test_the_basis_agrees_with_a_naive_model(
    router: str, gap_every: int, first: int, steps: list[Step]
) -> None:
    backend = MemoryBackend(gap_every=gap_every)
    hub = Hub.from_backend(backend)
    topic = hub.create_topic("orders", partitions=first, router=router, any_count=True)
    open_group(backend, GROUP, "orders", "earliest", ManualClock())
    model, reader = Model(backend, topic), BasisReader(backend, GROUP)
    for what, number in steps:
        take(backend, topic, model, what, number)
        wanted = model.states()
        for basis in (read_basis(backend, GROUP), reader.read()):
            assert {unit.name: unit.state for unit in basis.units} == wanted


def take(backend: Backend, topic: Topic[Any], model: Model, what: str, number: int) -> None:
    """Take one random step with a topic and a group, the same for both."""
    known = model.states()
    all_streams = [Partition.parse(unit) for unit in known]
    opened = [each for each in all_streams if known[str(each)] is UnitState.OPEN]
    among = opened if what in ("ack", "drain") else all_streams
    where = among[number % len(among)]
    end = backend.log.bounds(where).end
    match what:
        case "push":
            topic.push_many([(f"c{i}", i) for i in range(number % 20 + 1)])
        case "scale":
            topic.scale(number % 6 + 1, any_count=True)
        case "add":
            topic.add_storage_topic(number % 6 + 1, any_count=True)
        case "ack" if end:
            offset = number % end
            ack(backend, str(where), offset, offset + 1)
            model.acked.setdefault(where, set()).add(offset)
        case "drain":
            ack(backend, str(where), 0, end)
            model.acked[where] = set(range(end))
        case "seek":
            seek(backend, GROUP, {where: number % (end + 1)})
            for reached in followers_of(topic, where, all_streams):
                model.acked.pop(reached, None)
            model.acked[where] = set(range(number % (end + 1)))


def followers_of(topic: Topic[Any], where: Partition, streams: list[Partition]) -> set[Partition]:
    """Return the streams that follow one, computed from the predecessors of each."""
    reached = {where}
    for stream in streams:
        if topic.follows(stream) & reached:
            reached.add(stream)
    return reached - {where}


def test_a_thousand_units_are_read_in_time(backend: Backend, hub: Hub, clock: ManualClock) -> None:
    orders = hub.create_topic("orders", partitions=UNITS)
    orders.push_many([(f"c{i}", i) for i in range(20)])
    orders.scale(2 * UNITS)
    open_group(backend, GROUP, "orders", "earliest", clock)
    drain(backend, [Partition("orders", 0, number) for number in range(UNITS)])
    orders.scale(UNITS)
    drain(backend, [Partition("orders", 1, number) for number in range(2 * UNITS)])
    reader = BasisReader(backend, GROUP)
    reader.read()
    durations = []
    for _ in range(3):
        began = time.thread_time()
        basis = reader.read()
        durations.append(time.thread_time() - began)
    opened = {unit.name for unit in basis.units if unit.state is UnitState.OPEN}
    assert opened == {f"orders/2.{number}" for number in range(UNITS)}
    assert len(basis.units) == 4 * UNITS
    assert min(durations) < READ_S


def drain(backend: Backend, partitions: list[Partition]) -> None:
    """Acknowledge every record of partitions in one commit."""
    writes: dict[TableKey, bytes | None] = {}
    for where in partitions:
        progress = Progress(f"group:{GROUP}", where, backend.log.bounds(where).end)
        writes |= progress.writes()
    backend.commit(Transaction(table=writes))


@pytest.mark.parametrize("partitions", [1, 4])
def test_reading_twice_reads_the_same(
    backend: Backend, hub: Hub, clock: ManualClock, partitions: int
) -> None:
    hub.create_topic("orders", partitions=partitions)
    open_group(backend, GROUP, "orders", "earliest", clock)
    assert read_basis(backend, GROUP) == read_basis(backend, GROUP)
