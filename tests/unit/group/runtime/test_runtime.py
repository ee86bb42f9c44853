"""The runtime: what it carries out for a machine, and what it tells it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from tailrace.backend.contract import Change, Entry
from tailrace.clock import SystemClock
from tailrace.errors import UnknownGroup, UnknownTopic
from tailrace.group.actions import (
    Action,
    Beat,
    Departed,
    Drain,
    Drop,
    Elect,
    Install,
    Look,
    Probe,
    ReadUnits,
    Record,
    Resign,
    Send,
)
from tailrace.group.definition import GROUPS, LEADERS
from tailrace.group.events import (
    Beaten,
    Elected,
    Event,
    Gone,
    LeaderFound,
    Received,
    Stalled,
    Tick,
    UnitsRead,
)
from tailrace.group.history import read_history
from tailrace.group.messages import Ping
from tailrace.group.opening import delete_group, open_group
from tailrace.group.seeking import seek_key
from tailrace.group.sending import seek
from tailrace.group.unit import LeaderEntry
from tailrace.message import Partition
from tests.unit.group.runtime.scene import SUBSCRIBED, Scene
from tests.unit.group.runtime.scripted import Consumer
from tests.waiting import until


def test_a_session_is_told_what_it_owns_by_the_loop(scene: Scene) -> None:
    unit = ("orders/0.0", 7)
    scene.do(Install("s1", *unit), Drain("s1", *unit), Drop("s1", *unit), Departed("s1"))
    until(lambda: len(scene.consumer.calls) == 4)
    assert scene.consumer.calls == [
        ("install", *unit),
        ("drain", *unit),
        ("drop", *unit),
        ("departed",),
    ]
    assert scene.consumer.threads == {"tailrace loop"}
    assert scene.machine.threads == {"tailrace loop"}


def test_what_is_for_a_session_that_is_gone_is_left_undone(scene: Scene) -> None:
    scene.do(Install("s9", "orders/0.0", 7), Look("billing"))
    scene.event(LeaderFound)
    assert scene.consumer.error is None


def test_a_message_to_its_own_process_comes_back(scene: Scene) -> None:
    scene.do(Send(scene.machine.process, Ping(1, 0)))
    assert scene.event(Received) == Received(scene.machine.process, Ping(1, 0))


def test_looking_and_electing_are_answered_from_the_store(scene: Scene) -> None:
    scene.do(Look("billing"), Elect("billing", 0))
    elected = scene.event(Elected)
    assert isinstance(elected, Elected)
    assert scene.machine.of(LeaderFound)[0] == LeaderFound("billing", None)
    entry = scene.backend.store.get(LEADERS + "billing")
    assert entry is not None
    assert elected == Elected("billing", entry.version, ())


def test_resigning_leaves_no_leader_and_says_so(scene: Scene) -> None:
    scene.do(Elect("billing", 0))
    elected = scene.event(Elected)
    assert isinstance(elected, Elected)
    scene.do(Resign("billing", elected.term))
    until(lambda: LeaderFound("billing", None) in scene.machine.events)


def test_units_are_derived_from_the_topic(scene: Scene) -> None:
    scene.do(ReadUnits("billing"))
    read = scene.event(UnitsRead)
    assert isinstance(read, UnitsRead)
    assert [unit.name for unit in read.basis.units] == ["orders/0.0", "orders/0.1"]


def test_history_is_written_in_order(scene: Scene) -> None:
    scene.do(*(Record("billing", "granted", unit=f"orders/0.{n}", epoch=n) for n in range(5)))
    until(lambda: len(read_history(scene.backend, "billing")) == 5)
    lines = read_history(scene.backend, "billing")
    assert [line.epoch for line in lines] == list(range(5))
    owner = scene.backend.holder(f"process/{scene.machine.process}")
    assert {line.process for line in lines} == {owner}


def test_a_beat_is_seen_by_others_and_answered_with_what_is_led(scene: Scene) -> None:
    name = f"process/{scene.machine.process}"
    before = scene.backend.beats(name)
    scene.do(Elect("billing", 0))
    elected = scene.event(Elected)
    assert isinstance(elected, Elected)
    scene.do(Beat(1.25))
    assert scene.event(Beaten) == Beaten(1.25, (("billing", elected.term),))
    assert scene.backend.beats(name) not in (None, before)


def test_a_process_that_nobody_holds_is_gone_and_one_that_is_held_is_not(scene: Scene) -> None:
    with scene.backend.hold("process/alive", "another"):
        scene.do(Probe("alive"), Probe("dead"))
        assert scene.event(Gone) == Gone("dead")
    assert not scene.machine.of(Stalled)


# What it tells the machine.


def test_the_time_is_told_at_the_deadline_and_not_before(scene: Scene) -> None:
    due = time.monotonic() + 0.05
    told: list[float] = []

    def answer(event: Event) -> Iterable[Action]:
        if isinstance(event, Tick):
            told.append(time.monotonic())
        else:
            scene.machine.tick_at = due
        return ()

    scene.machine.answer = answer
    scene.runtime.tell(SUBSCRIBED)
    until(lambda: told)
    assert told[0] >= due
    assert len(told) == 1


def test_all_that_waits_is_handled_before_the_time_is_told(scene: Scene) -> None:
    seen: list[Event] = []
    busy, go_on = threading.Event(), threading.Event()

    def answer(event: Event) -> Iterable[Action]:
        seen.append(event)
        if event == SUBSCRIBED:
            scene.machine.tick_at = time.monotonic()
            busy.set()
            go_on.wait(30)
        return ()

    scene.machine.answer = answer
    scene.runtime.tell(SUBSCRIBED)
    busy.wait(30)
    waiting = [Stalled(f"p{number}", 0.0) for number in range(100)]
    for event in waiting:
        scene.runtime.tell(event)
    go_on.set()
    until(lambda: scene.machine.ticks)
    mine = [event for event in seen if isinstance(event, Stalled | Tick)]
    assert mine == [*waiting, Tick()]


def test_a_change_of_leader_is_told_unasked(scene: Scene) -> None:
    value = b'{"process": "another"}'
    version = scene.backend.store.commit(Change(writes={LEADERS + "billing": value}))
    found = LeaderFound("billing", LeaderEntry("another", version))
    until(lambda: found in scene.machine.events)
    scene.backend.store.commit(Change(writes={LEADERS + "billing": None}))
    until(lambda: scene.machine.events[-1] == LeaderFound("billing", None))


def test_the_units_of_what_is_led_are_read_again_when_a_topic_changes(scene: Scene) -> None:
    scene.machine.leads = ["billing"]
    scene.orders.scale(4)
    until(
        lambda: any(len(read.basis.units) == 6 for read in scene.machine.of(UnitsRead)),
        "the new units are not read",
    )
    scene.machine.leads = []


def test_the_units_of_what_is_led_are_read_again_when_the_group_is_sent_elsewhere(
    scene: Scene,
) -> None:
    scene.machine.leads = ["billing"]
    seek(scene.backend, "billing", "latest")
    entry = scene.backend.store.get(seek_key("billing", "orders"))
    assert entry is not None
    until(
        lambda: any(
            (entry.key, entry.version) in read.basis.versions
            for read in scene.machine.of(UnitsRead)
        ),
        "the units are not read after the seek",
    )
    scene.machine.leads = []


def test_removals_that_the_store_has_forgotten_are_noticed_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tailrace.testing.memory.store", "tailrace.backend.embedded.tables"):
        monkeypatch.setattr(f"{module}.REMOVALS_KEPT", 1)
    store = scene.backend.store
    value = b'{"process": "another"}'
    store.commit(Change(writes={LEADERS + "billing": value}))
    until(lambda: scene.machine.of(LeaderFound))
    for _ in range(20):
        keys = {f"k{number}": b"" for number in range(10)}
        store.commit(Change(writes={LEADERS + "billing": None, **keys}))
        store.commit(Change(writes=dict.fromkeys(keys)))
    until(lambda: scene.machine.of(LeaderFound)[-1].entry is None)


# What it does for sessions.


def test_a_session_that_waits_is_woken_once_by_records_of_its_partitions_alone(
    scene: Scene,
) -> None:
    mine, others = Partition("orders", 0, 0), Partition("orders", 0, 1)
    other = Consumer("s2")
    scene.runtime.add(other)
    scene.runtime.await_records("s1", {mine: 0})
    scene.runtime.await_records("s2", {others: 0})
    keys = {scene.orders.route(f"k{number}"): f"k{number}" for number in range(100)}
    scene.orders.push(b"a", key=keys[0])
    until(lambda: scene.consumer.calls)
    scene.orders.push(b"b", key=keys[0])
    scene.orders.push(b"c", key=keys[1])
    until(lambda: other.calls)
    assert scene.consumer.calls == [("wake", mine)]
    assert other.calls == [("wake", others)]
    assert scene.consumer.threads == {"tailrace tide"}


def test_a_session_is_woken_when_its_partition_is_sealed_or_deleted(scene: Scene) -> None:
    mine = Partition("orders", 0, 0)
    scene.runtime.await_records("s1", {mine: 0})
    scene.orders.scale(4)
    until(lambda: scene.consumer.calls == [("wake", mine)])
    scene.hub.create_topic("gone", partitions=1)
    deleted = Partition("gone", 0, 0)
    scene.runtime.await_records("s1", {deleted: 0})
    scene.hub.delete_topic("gone")
    until(lambda: scene.consumer.calls[1:] == [("wake", deleted)])


def test_what_a_session_was_not_woken_for_it_still_awaits(scene: Scene) -> None:
    mine = [Partition("orders", 0, number) for number in (0, 1)]
    for each in mine:
        scene.runtime.await_records("s1", {each: 0})
    keys = {scene.orders.route(f"k{number}"): f"k{number}" for number in range(100)}
    scene.orders.push(b"a", key=keys[0])
    until(lambda: scene.consumer.calls)
    scene.orders.push(b"a", key=keys[1])
    until(lambda: len(scene.consumer.calls) > 1)
    assert scene.consumer.calls == [("wake", each) for each in mine]


def test_a_session_that_awaits_later_records_is_left_alone(scene: Scene) -> None:
    mine = Partition("orders", 0, 0)
    scene.runtime.await_records("s1", {mine: 1})
    scene.orders.push(b"a")
    scene.do(Look("billing"))
    scene.event(LeaderFound)
    assert not scene.consumer.calls


def test_progress_is_saved_by_its_own_thread_after_the_interval_or_at_once(scene: Scene) -> None:
    scene.runtime.progress_due("s1")
    scene.runtime.progress_due("s1")
    until(lambda: scene.consumer.calls)
    scene.runtime.save_soon("s1")
    until(lambda: len(scene.consumer.calls) == 2)
    assert scene.consumer.calls == [("save",), ("save",)]
    assert scene.consumer.threads == {"tailrace saving"}


def test_sessions_of_a_group_that_is_deleted_fail_and_others_do_not(scene: Scene) -> None:
    open_group(scene.backend, "other", "orders", "earliest", SystemClock())
    other = Consumer("s2", "other")
    scene.runtime.add(other)
    delete_group(scene.backend, "billing")
    until(lambda: scene.consumer.error)
    assert isinstance(scene.consumer.error, UnknownGroup)
    assert other.error is None


def test_a_group_made_again_fails_nobody_who_consumes_it_by_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, late = scene.backend.store, Consumer("s2")
    watch, looks, seen = store.watch, [0], []

    def watch_and_be_overtaken(prefix: str, after: int) -> list[Entry]:
        entries = watch(prefix, after)
        seen.extend(entries)
        if any(entry.key == GROUPS + "billing" and entry.value is None for entry in entries):
            open_group(scene.backend, "billing", "orders", "earliest", SystemClock())
            scene.runtime.add(late)
        looks[0] += late.id in scene.runtime._members
        return entries

    monkeypatch.setattr(store, "watch", watch_and_be_overtaken)
    store.commit(Change(writes={"a sign": b""}))
    until(lambda: seen, "nobody looks this way")
    delete_group(scene.backend, "billing")
    until(lambda: looks[0] > 1)
    assert late.error is None


def test_sessions_of_a_topic_that_is_deleted_fail_and_those_of_a_filter_do_not(
    scene: Scene,
) -> None:
    open_group(scene.backend, "other", "order*", "earliest", SystemClock())
    other = Consumer("s2", "other")
    scene.runtime.add(other)
    scene.hub.delete_topic("orders")
    until(lambda: scene.consumer.error)
    assert isinstance(scene.consumer.error, UnknownTopic)
    scene.do(Look("billing"))
    scene.event(LeaderFound)
    assert other.error is None
