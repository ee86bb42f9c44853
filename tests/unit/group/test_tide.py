"""The beats of a process: what is told after one, and when nothing is."""

from __future__ import annotations

import threading

import pytest

from tailrace.backend.contract import Hold
from tailrace.group.actions import Elect
from tailrace.group.events import Beaten, Event
from tailrace.group.grants import elect, look
from tailrace.group.opening import open_group
from tailrace.group.tide import Tide, UnitsChanged
from tailrace.hub import Hub
from tailrace.testing import ManualClock, MemoryBackend

GROUP = "billing"


@pytest.fixture
def backend() -> MemoryBackend:
    """A group that the process `mine` leads."""
    backend = MemoryBackend()
    Hub.from_backend(backend).create_topic("orders", partitions=1)
    open_group(backend, GROUP, "orders", "earliest", ManualClock())
    elect(backend, "mine", Elect(GROUP, 0))
    return backend


def beats_told(backend: MemoryBackend, hold: Hold) -> list[Beaten]:
    """What is told of two beats, one after the other."""
    told: list[Event | UnitsChanged] = []
    beaten = threading.Semaphore(0)

    def beat() -> bool:
        try:
            return hold.beat()
        finally:
            beaten.release()

    watched = Hold(hold.name, hold.owner, hold.release, beat)
    tide = Tide(backend, "mine", watched, {}, tell=told.append, check=lambda group: None)
    thread = threading.Thread(target=tide.run)
    thread.start()
    try:
        for sent_at in (1.0, 2.0):
            tide.beat(sent_at)
            assert beaten.acquire(timeout=30)
    finally:
        tide.stop()
        thread.join()
    return [event for event in told if isinstance(event, Beaten)]


def test_after_a_beat_it_is_told_what_the_process_leads(backend: MemoryBackend) -> None:
    entry = look(backend, GROUP).entry
    assert entry is not None
    with backend.hold("process/mine", "me") as hold:
        led = ((GROUP, entry.term),)
        assert beats_told(backend, hold) == [Beaten(1.0, led), Beaten(2.0, led)]


def test_what_another_took_over_before_the_beat_was_seen_is_not_led_any_more(
    backend: MemoryBackend,
) -> None:
    """Who looks before the beat and takes over after it may rely on it: the look at the store that
    the lease is given by comes last."""
    entry = look(backend, GROUP).entry
    assert entry is not None

    def beat() -> bool:
        elect(backend, "another", Elect(GROUP, entry.term))
        return True

    hold = Hold("process/mine", "me", lambda: None, beat)
    assert beats_told(backend, hold) == [Beaten(1.0, ()), Beaten(2.0, ())]


def test_a_process_that_holds_its_name_no_more_is_told_of_no_beat(backend: MemoryBackend) -> None:
    hold = backend.hold("process/mine", "me")
    hold.release()
    assert beats_told(backend, hold) == []
