"""The runtime: the actions it executes for a machine, and the events it posts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pytest

from tailrace.backend.contract import Change, Entry
from tailrace.clock import SystemClock
from tailrace.errors import UnknownGroup, UnknownTopic
from tailrace.group.protocol.actions import (
    Action,
    Beat,
    Departed,
    Drain,
    Drop,
    Elect,
    FindLeader,
    Install,
    Probe,
    ReadUnits,
    Resign,
    Send,
    WriteHistory,
)
from tailrace.group.protocol.events import (
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
from tailrace.group.protocol.messages import Ping
from tailrace.group.protocol.unit import LeaderEntry
from tailrace.group.store.definition import GROUPS, LEADERS
from tailrace.group.store.history import read_history
from tailrace.group.store.lifecycle import delete_group, open_group
from tailrace.group.store.seek import seek
from tailrace.group.store.seek_steps import seek_key
from tailrace.message import Partition
from tests.support.waiting import until
from tests.unit.group.runtime.scripted_runtime import SUBSCRIBED, RecordingSession, ScriptedRuntime


def test_the_loop_installs_units_in_their_session(scripted: ScriptedRuntime) -> None:
    unit = ("orders/0.0", 7)
    scripted.do(Install("s1", *unit), Drain("s1", *unit), Drop("s1", *unit), Departed("s1"))
    until(lambda: len(scripted.session.calls) == 4)
    assert scripted.session.calls == [
        ("install", *unit),
        ("drain", *unit),
        ("drop", *unit),
        ("departed",),
    ]
    assert scripted.session.threads == {"tailrace loop"}
    assert scripted.machine.threads == {"tailrace loop"}


def test_actions_for_a_session_that_ended_are_dropped(scripted: ScriptedRuntime) -> None:
    scripted.do(Install("s9", "orders/0.0", 7), FindLeader("billing"))
    scripted.event(LeaderFound)
    assert scripted.session.error is None


def test_a_message_to_its_own_process_comes_back(scripted: ScriptedRuntime) -> None:
    scripted.do(Send(scripted.machine.process, Ping(1, 0)))
    assert scripted.event(Received) == Received(scripted.machine.process, Ping(1, 0))


def test_finding_the_leader_and_electing_are_answered_from_the_store(
    scripted: ScriptedRuntime,
) -> None:
    scripted.do(FindLeader("billing"), Elect("billing", 0))
    elected = scripted.event(Elected)
    assert isinstance(elected, Elected)
    assert scripted.machine.of(LeaderFound)[0] == LeaderFound("billing", None)
    entry = scripted.backend.store.get(LEADERS + "billing")
    assert entry is not None
    assert elected == Elected("billing", entry.version, ())


def test_resigning_leaves_no_leader_and_is_answered(scripted: ScriptedRuntime) -> None:
    scripted.do(Elect("billing", 0))
    elected = scripted.event(Elected)
    assert isinstance(elected, Elected)
    scripted.do(Resign("billing", elected.term))
    until(lambda: scripted.machine.of(LeaderFound)[-1:] and found_last(scripted).entry is None)
    removed_at = found_last(scripted).removed_at
    assert removed_at is not None
    assert removed_at > elected.term


def found_last(scripted: ScriptedRuntime) -> LeaderFound:
    found = scripted.machine.of(LeaderFound)[-1]
    assert isinstance(found, LeaderFound)
    return found


def test_units_are_derived_from_the_topic(scripted: ScriptedRuntime) -> None:
    scripted.do(ReadUnits("billing"))
    read = scripted.event(UnitsRead)
    assert isinstance(read, UnitsRead)
    assert [unit.name for unit in read.basis.units] == ["orders/0.0", "orders/0.1"]


def test_history_is_written_in_order(scripted: ScriptedRuntime) -> None:
    scripted.do(
        *(WriteHistory("billing", "granted", unit=f"orders/0.{n}", epoch=n) for n in range(5))
    )
    until(lambda: len(read_history(scripted.backend, "billing")) == 5)
    lines = read_history(scripted.backend, "billing")
    assert [line.epoch for line in lines] == list(range(5))
    owner = scripted.backend.holder(f"process/{scripted.machine.process}")
    assert {line.process for line in lines} == {owner}


def test_a_heartbeat_is_seen_by_others_and_answered_with_the_groups_it_leads(
    scripted: ScriptedRuntime,
) -> None:
    name = f"process/{scripted.machine.process}"
    before = scripted.backend.beats(name)
    scripted.do(Elect("billing", 0))
    elected = scripted.event(Elected)
    assert isinstance(elected, Elected)
    scripted.do(Beat(1.25))
    assert scripted.event(Beaten) == Beaten(1.25, (("billing", elected.term),))
    assert scripted.backend.beats(name) not in (None, before)


def test_a_process_without_a_hold_is_gone_and_one_with_a_hold_is_alive(
    scripted: ScriptedRuntime,
) -> None:
    with scripted.backend.hold("process/alive", "another"):
        scripted.do(Probe("alive"), Probe("dead"))
        assert scripted.event(Gone) == Gone("dead")
    assert not scripted.machine.of(Stalled)


# Events that the runtime posts.


def test_a_tick_comes_at_the_deadline_and_not_before(scripted: ScriptedRuntime) -> None:
    due = time.monotonic() + 0.05
    ticks: list[float] = []

    def answer(event: Event) -> Iterable[Action]:
        if isinstance(event, Tick):
            ticks.append(time.monotonic())
        else:
            scripted.machine.tick_at = due
        return ()

    scripted.machine.answer = answer
    scripted.runtime.post(SUBSCRIBED)
    until(lambda: ticks)
    assert ticks[0] >= due
    assert len(ticks) == 1


def test_all_pending_events_are_handled_before_a_tick(scripted: ScriptedRuntime) -> None:
    seen: list[Event] = []
    busy, go_on = threading.Event(), threading.Event()

    def answer(event: Event) -> Iterable[Action]:
        seen.append(event)
        if event == SUBSCRIBED:
            scripted.machine.tick_at = time.monotonic()
            busy.set()
            go_on.wait(30)
        return ()

    scripted.machine.answer = answer
    scripted.runtime.post(SUBSCRIBED)
    busy.wait(30)
    waiting = [Stalled(f"p{number}", 0.0) for number in range(100)]
    for event in waiting:
        scripted.runtime.post(event)
    go_on.set()
    until(lambda: Tick() in seen)
    mine = [event for event in seen if isinstance(event, Stalled | Tick)]
    assert mine == [*waiting, Tick()]


def test_a_change_of_leader_is_posted_unasked(scripted: ScriptedRuntime) -> None:
    value = b'{"process": "another"}'
    version = scripted.backend.store.commit(Change(writes={LEADERS + "billing": value}))
    found = LeaderFound("billing", LeaderEntry("another", version))
    until(lambda: found in scripted.machine.events)
    removed_at = scripted.backend.store.commit(Change(writes={LEADERS + "billing": None}))
    until(lambda: scripted.machine.events[-1] == LeaderFound("billing", None, removed_at))


def test_a_leader_reads_the_units_again_when_a_topic_changes(scripted: ScriptedRuntime) -> None:
    scripted.machine.leads = ["billing"]
    scripted.orders.scale(4)
    until(
        lambda: any(len(read.basis.units) == 6 for read in scripted.machine.of(UnitsRead)),
        "the new units are not read",
    )
    scripted.machine.leads = []


def test_a_leader_reads_the_units_again_after_a_seek(
    scripted: ScriptedRuntime,
) -> None:
    scripted.machine.leads = ["billing"]
    seek(scripted.backend, "billing", "latest")
    entry = scripted.backend.store.get(seek_key("billing", "orders"))
    assert entry is not None
    until(
        lambda: any(
            (entry.key, entry.version) in read.basis.versions
            for read in scripted.machine.of(UnitsRead)
        ),
        "the units are not read after the seek",
    )
    scripted.machine.leads = []


def test_removals_that_the_store_has_forgotten_are_still_noticed(
    scripted: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tailrace.testing.memory.store", "tailrace.backend.embedded.tables"):
        monkeypatch.setattr(f"{module}.REMOVALS_KEPT", 1)
    store = scripted.backend.store
    value = b'{"process": "another"}'
    store.commit(Change(writes={LEADERS + "billing": value}))
    until(lambda: scripted.machine.of(LeaderFound))
    for _ in range(20):
        keys = {f"k{number}": b"" for number in range(10)}
        store.commit(Change(writes={LEADERS + "billing": None, **keys}))
        store.commit(Change(writes=dict.fromkeys(keys)))
    until(lambda: scripted.machine.of(LeaderFound)[-1].entry is None)


# Calls of sessions.


def test_a_session_that_waits_is_woken_once_by_records_of_its_partitions_alone(
    scripted: ScriptedRuntime,
) -> None:
    mine, others = Partition("orders", 0, 0), Partition("orders", 0, 1)
    other = RecordingSession("s2")
    scripted.runtime.add(other)
    scripted.runtime.await_records("s1", {mine: 0})
    scripted.runtime.await_records("s2", {others: 0})
    keys = {scripted.orders.route(f"k{number}"): f"k{number}" for number in range(100)}
    scripted.orders.push(b"a", key=keys[0])
    until(lambda: scripted.session.calls)
    scripted.orders.push(b"b", key=keys[0])
    scripted.orders.push(b"c", key=keys[1])
    until(lambda: other.calls)
    assert scripted.session.calls == [("wake", mine)]
    assert other.calls == [("wake", others)]
    assert scripted.session.threads == {"tailrace store watcher"}


def test_a_session_is_woken_when_its_partition_is_sealed_or_deleted(
    scripted: ScriptedRuntime,
) -> None:
    mine = Partition("orders", 0, 0)
    scripted.runtime.await_records("s1", {mine: 0})
    scripted.orders.scale(4)
    until(lambda: scripted.session.calls == [("wake", mine)])
    scripted.hub.create_topic("gone", partitions=1)
    deleted = Partition("gone", 0, 0)
    scripted.runtime.await_records("s1", {deleted: 0})
    scripted.hub.delete_topic("gone")
    until(lambda: scripted.session.calls[1:] == [("wake", deleted)])


def test_a_session_still_waits_for_partitions_that_did_not_wake_it(
    scripted: ScriptedRuntime,
) -> None:
    mine = [Partition("orders", 0, number) for number in (0, 1)]
    for each in mine:
        scripted.runtime.await_records("s1", {each: 0})
    keys = {scripted.orders.route(f"k{number}"): f"k{number}" for number in range(100)}
    scripted.orders.push(b"a", key=keys[0])
    until(lambda: scripted.session.calls)
    scripted.orders.push(b"a", key=keys[1])
    until(lambda: len(scripted.session.calls) > 1)
    assert scripted.session.calls == [("wake", each) for each in mine]


def test_a_session_that_waits_for_later_records_is_not_woken(scripted: ScriptedRuntime) -> None:
    mine = Partition("orders", 0, 0)
    scripted.runtime.await_records("s1", {mine: 1})
    scripted.orders.push(b"a")
    scripted.do(FindLeader("billing"))
    scripted.event(LeaderFound)
    assert not scripted.session.calls


def test_progress_is_saved_by_its_own_thread_after_the_interval_or_at_once(
    scripted: ScriptedRuntime,
) -> None:
    saving, go_on = threading.Event(), threading.Event()

    def save() -> None:
        saving.set()
        go_on.wait(30)

    scripted.session.saves = save
    scripted.runtime.progress_due("s1")
    assert saving.wait(30)
    for _ in range(2):  # one save for both, however late the second one is
        scripted.runtime.progress_due("s1")
    go_on.set()
    until(lambda: len(scripted.session.calls) == 2)
    scripted.runtime.save_soon("s1")
    until(lambda: len(scripted.session.calls) == 3)
    assert scripted.session.calls == [("save",)] * 3
    assert scripted.session.threads == {"tailrace progress saver"}


def test_sessions_of_a_group_that_is_deleted_fail_and_others_do_not(
    scripted: ScriptedRuntime,
) -> None:
    open_group(scripted.backend, "other", "orders", "earliest", SystemClock())
    other = RecordingSession("s2", "other")
    scripted.runtime.add(other)
    delete_group(scripted.backend, "billing")
    until(lambda: scripted.session.error)
    assert isinstance(scripted.session.error, UnknownGroup)
    assert other.error is None


def test_a_group_created_again_fails_no_consumer_of_the_new_group(
    scripted: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, late = scripted.backend.store, RecordingSession("s2")
    watch, polls, seen = store.watch, [0], []

    def watch_and_be_overtaken(prefix: str, after: int) -> list[Entry]:
        entries = watch(prefix, after)
        seen.extend(entries)
        if any(entry.key == GROUPS + "billing" and entry.value is None for entry in entries):
            open_group(scripted.backend, "billing", "orders", "earliest", SystemClock())
            scripted.runtime.add(late)
        polls[0] += late.id in scripted.runtime._members
        return entries

    def sign_is_seen() -> list[Entry]:
        # A poll that began before the patch may have read the last sign.
        store.commit(Change(writes={"a sign": b""}))
        return seen

    monkeypatch.setattr(store, "watch", watch_and_be_overtaken)
    until(sign_is_seen, "the watcher does not poll")
    delete_group(scripted.backend, "billing")
    until(lambda: polls[0] > 1)
    assert late.error is None


def test_sessions_of_a_topic_that_is_deleted_fail_and_those_of_a_filter_do_not(
    scripted: ScriptedRuntime,
) -> None:
    open_group(scripted.backend, "other", "order*", "earliest", SystemClock())
    other = RecordingSession("s2", "other")
    scripted.runtime.add(other)
    scripted.hub.delete_topic("orders")
    until(lambda: scripted.session.error)
    assert isinstance(scripted.session.error, UnknownTopic)
    scripted.do(FindLeader("billing"))
    scripted.event(LeaderFound)
    assert other.error is None
