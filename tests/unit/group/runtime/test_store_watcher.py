"""The heartbeats of a process, and the events posted after each."""

from __future__ import annotations

import threading

import pytest

from tailrace.backend.contract import Hold
from tailrace.group.protocol.actions import Elect
from tailrace.group.protocol.events import Beaten, Event
from tailrace.group.runtime.store_watcher import StoreWatcher, UnitsChanged
from tailrace.group.store.grants import elect, find_leader
from tailrace.group.store.lifecycle import open_group
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.unit_source import UnitSources
from tailrace.hub.hub import Hub
from tailrace.testing import ManualClock, MemoryBackend

GROUP = "billing"


@pytest.fixture
def backend() -> MemoryBackend:
    """A group that the process `mine` leads."""
    backend = MemoryBackend()
    Hub.from_backend(backend).create_topic("orders", partitions=1)
    open_group(backend, GROUP, "orders", "earliest", ManualClock())
    elect(backend, "mine", Elect(GROUP, 0), PartitionUnits(backend))
    return backend


def beats_posted(backend: MemoryBackend, hold: Hold) -> list[Beaten]:
    """Return the events of two successive heartbeats."""
    posted: list[Event | UnitsChanged] = []
    beaten = threading.Semaphore(0)

    def beat() -> bool:
        try:
            return hold.beat()
        finally:
            beaten.release()

    watched = Hold(hold.name, hold.owner, hold.release, beat)
    watcher = StoreWatcher(
        backend,
        "mine",
        watched,
        {},
        UnitSources(PartitionUnits(backend)),
        post=posted.append,
        check=lambda group: None,
    )
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        for sent_at in (1.0, 2.0):
            watcher.beat(sent_at)
            assert beaten.acquire(timeout=30)
    finally:
        watcher.stop()
        thread.join()
    return [event for event in posted if isinstance(event, Beaten)]


def test_after_a_heartbeat_the_groups_that_the_process_leads_are_posted(
    backend: MemoryBackend,
) -> None:
    entry = find_leader(backend, GROUP).entry
    assert entry is not None
    with backend.hold("process/mine", "me") as hold:
        led = ((GROUP, entry.term),)
        assert beats_posted(backend, hold) == [Beaten(1.0, led), Beaten(2.0, led)]


def test_a_group_taken_over_before_the_heartbeat_was_seen_is_no_longer_led(
    backend: MemoryBackend,
) -> None:
    """A process that probed before the heartbeat may take over after it: the lease counts only for
    groups that a read of the store after the heartbeat still finds."""
    entry = find_leader(backend, GROUP).entry
    assert entry is not None

    def beat() -> bool:
        elect(backend, "another", Elect(GROUP, entry.term), PartitionUnits(backend))
        return True

    hold = Hold("process/mine", "me", lambda: None, beat)
    assert beats_posted(backend, hold) == [Beaten(1.0, ()), Beaten(2.0, ())]


def test_a_process_that_lost_its_name_gets_no_heartbeat_event(backend: MemoryBackend) -> None:
    hold = backend.hold("process/mine", "me")
    hold.release()
    assert beats_posted(backend, hold) == []
