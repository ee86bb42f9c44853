"""The runtime: what it carries out for a machine, and what it tells it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tailrace
from tailrace.backend.contract import Backend, Change, Entry
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import BackendUnavailable, HubClosed, UnknownGroup, UnknownTopic
from tailrace.group.actions import (
    Action,
    Beat,
    CommitGrants,
    Departed,
    Drain,
    Drop,
    Elect,
    Install,
    Look,
    NewGrant,
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
    GrantsUnknown,
    LeaderFound,
    Received,
    Stalled,
    Subscribed,
    Tick,
    UnitsRead,
)
from tailrace.group.history import read_history
from tailrace.group.messages import Ping
from tailrace.group.opening import delete_group, open_group
from tailrace.group.runtime import Runtime, join
from tailrace.group.times import Times
from tailrace.group.unit import LeaderEntry
from tailrace.hub import Hub
from tailrace.message import Partition
from tests.contract.backends import open_backend
from tests.integration.processes import ended_well, fork
from tests.unit.group.scripted import Consumer, Scripted
from tests.waiting import until

SUBSCRIBED = Subscribed("s1", "billing", 5.0)


class Scene:
    """A runtime with a scripted machine and one consumer."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.hub = Hub.from_backend(backend)
        self.orders = self.hub.create_topic("orders", bytes, partitions=2, exist_ok=True)
        open_group(backend, "billing", "orders", "earliest", SystemClock())
        self.machine = Scripted()
        self.consumer = Consumer()
        self.runtime = Runtime(backend, Times(), 0.01, machine=self._machine)
        self.runtime.add(self.consumer)

    def _machine(self, process: str, times: Times) -> Scripted:
        self.machine.process = process
        return self.machine

    def do(self, *actions: Action) -> None:
        """Have the machine want something."""
        self.machine.answer = lambda event: actions if event == SUBSCRIBED else ()
        self.runtime.tell(SUBSCRIBED)

    def event(self, kind: type[Event]) -> Event:
        """Wait for the first event of a kind."""
        until(lambda: self.machine.of(kind), f"no {kind.__name__}")
        found: Event = self.machine.of(kind)[0]
        return found

    def end(self) -> None:
        self.runtime.close(HubClosed("the test is over"))


@pytest.fixture(params=["memory", "embedded-none"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    backend = open_backend(request.param, tmp_path / "hub")
    files, threads = _open_files(), set(threading.enumerate())
    scene = Scene(backend)
    yield scene
    scene.end()
    assert set(threading.enumerate()) <= threads
    backend.close()
    assert _open_files() <= files
    assert not list((tmp_path / "hub").glob("hub.sockets/*"))
    assert not list((tmp_path / "hub").glob("hub.holds/*"))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    backend = EmbeddedBackend.open(tmp_path / "hub", sync="none")
    yield backend
    backend.close()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# What the machine wants done.


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
    watch, looks = store.watch, [0]

    def watch_and_be_overtaken(prefix: str, after: int) -> list[Entry]:
        entries = watch(prefix, after)
        if any(entry.key == GROUPS + "billing" and entry.value is None for entry in entries):
            open_group(scene.backend, "billing", "orders", "earliest", SystemClock())
            scene.runtime.add(late)
        looks[0] += late.id in scene.runtime._members
        return entries

    monkeypatch.setattr(store, "watch", watch_and_be_overtaken)
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


# Troubles.


def _raise(*_: object) -> NoReturn:
    raise ZeroDivisionError("unexpected")


def _break_loop(scene: Scene, _: pytest.MonkeyPatch) -> None:
    scene.machine.answer = _raise
    scene.runtime.tell(SUBSCRIBED)


def _break_worker(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tailrace.group.grants.look", _raise)
    scene.do(Look("billing"))


def _break_tide(scene: Scene, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(scene.backend.store), "watch", _raise)
    scene.do(Beat(0.0))


def _break_saving(scene: Scene, _: pytest.MonkeyPatch) -> None:
    scene.consumer.saves = _raise
    scene.runtime.save_soon("s1")


@pytest.mark.parametrize("fault", [_break_loop, _break_worker, _break_tide, _break_saving])
def test_what_nobody_expected_in_a_thread_fails_every_session_and_ends_all_threads(
    scene: Scene,
    fault: Callable[[Scene, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Consumer("s2", "other")
    scene.runtime.add(other)
    fault(scene, monkeypatch)
    until(lambda: scene.consumer.error and other.error)
    for error in (scene.consumer.error, other.error):
        assert isinstance(error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        scene.runtime.until("s1")
    assert "consuming in groups failed" in caplog.text
    until(lambda: not _threads())
    assert scene.backend.beats(f"process/{scene.machine.process}") is None
    late = Consumer("s3")
    scene.runtime.add(late)
    assert isinstance(late.error, ZeroDivisionError)


def test_a_hub_that_is_closed_underneath_is_said_to_be_closed(tmp_path: Path) -> None:
    backend = EmbeddedBackend.open(tmp_path, sync="none")
    scene = Scene(backend)
    backend.close()
    scene.do(Look("billing"))
    until(lambda: isinstance(scene.consumer.error, HubClosed))
    scene.end()


class _Failing:
    """A method of a backend that fails until it is repaired."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self._call = getattr(owner, name)
        self.error: Exception | None = BackendUnavailable("the disk is away")
        self.tries = 0
        patch.setattr(owner, name, self)

    def __call__(self, *arguments: Any) -> Any:
        self.tries += 1
        if self.error is not None:
            raise self.error
        return self._call(*arguments)


def test_a_store_that_fails_is_said_once_and_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failing = _Failing(monkeypatch, scene.backend.store, "commit")
    scene.do(Record("billing", "joined"), *(Elect("billing", 0) for _ in range(10)))
    until(lambda: failing.tries >= 10)
    failing.error = None
    until(lambda: read_history(scene.backend, "billing"), "history is lost")
    assert scene.consumer.error is None
    assert caplog.text.count("the store of the hub does not work") == 1
    assert not scene.machine.of(Elected)


def test_a_commit_of_grants_that_fails_is_said_to_be_uncertain(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Failing(monkeypatch, scene.backend.store, "commit")
    scene.do(CommitGrants("billing", 3, 1, (), (NewGrant("orders/0.0", "b", "p", 0),), ()))
    assert scene.event(GrantsUnknown) == GrantsUnknown("billing", 3)


def test_a_look_at_a_process_that_fails_says_nothing_about_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scene.backend.hold("process/p", "another"):
        failing = _Failing(monkeypatch, scene.runtime._loop, "_look")
        scene.do(Probe("p"), Look("billing"))
        scene.event(LeaderFound)
        assert failing.tries == 1
        assert not scene.machine.of(Gone)


# Beginning and ending.


def _join(backend: Backend, consumer: Consumer) -> Runtime:
    return join(backend, consumer, Times(), 0.01)


def test_sessions_of_a_hub_share_a_runtime_that_ends_with_the_last(
    embedded: EmbeddedBackend,
) -> None:
    one = _join(embedded, Consumer("s1"))
    assert _join(embedded, Consumer("s2")) is one
    one.leave("s1")
    assert one.until("s2") == float("-inf")
    one.leave("s2")
    assert embedded.beats(f"process/{one.process}") is None
    with pytest.raises(HubClosed):
        one.until("s2")
    other = _join(embedded, Consumer("s3"))
    assert other.process != one.process
    other.leave("s3")


def test_closing_the_hub_ends_what_consumes_in_it(tmp_path: Path) -> None:
    hub = tailrace.open(tmp_path / "hub", sync="none")
    consumer = Consumer()
    runtime = _join(hub.backend, consumer)
    hub.close()
    assert isinstance(consumer.error, HubClosed)
    assert not _threads()
    runtime.leave("s1")
    assert not list((tmp_path / "hub" / "hub.sockets").iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(
    embedded: EmbeddedBackend, tmp_path: Path
) -> None:
    def die() -> None:
        _join(embedded, Consumer())
        os.kill(os.getpid(), signal.SIGKILL)

    assert not ended_well(fork(die))
    sockets, holds = tmp_path / "hub" / "hub.sockets", tmp_path / "hub" / "hub.holds"
    assert len(list(sockets.iterdir())) == len(list(holds.iterdir())) == 1
    runtime = _join(embedded, Consumer())
    assert [path.stem for path in sockets.iterdir()] == [runtime.process]
    assert [path.stem for path in holds.iterdir()] == [f"process%2F{runtime.process}"]
    runtime.leave("s1")


def test_a_forked_child_begins_anew_and_leaves_its_parent_alone(
    embedded: EmbeddedBackend,
) -> None:
    parent = _join(embedded, Consumer())

    def consume() -> None:
        with pytest.raises(HubClosed, match="fork"):
            parent.until("s1")
        parent.tell(SUBSCRIBED)
        parent.leave("s1")
        child = _join(embedded, Consumer("s2"))
        assert child.process != parent.process
        assert embedded.beats(f"process/{parent.process}") is not None
        child.leave("s2")

    for _ in range(3):
        assert ended_well(fork(consume))
    assert parent.until("s1") == float("-inf")
    parent.leave("s1")


def test_a_program_that_just_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import sys, tailrace; from tailrace.group.runtime import join;"
        "from tailrace.group.times import Times; from tests.unit.group.scripted import Consumer;"
        "join(tailrace.open(sys.argv[1], sync='none').backend, Consumer(), Times(), 1.0)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "hub"], check=True, timeout=60)
    assert not list((tmp_path / "hub" / "hub.sockets").iterdir())
    assert not list((tmp_path / "hub" / "hub.holds").iterdir())


def test_two_processes_hear_each_other_and_of_each_others_end(tmp_path: Path) -> None:
    backends = [EmbeddedBackend.open(tmp_path / "hub", sync="none") for _ in range(2)]
    one, other = map(Scene, backends)
    one.do(Send(other.machine.process, Ping(7, 0)))
    assert other.event(Received) == Received(one.machine.process, Ping(7, 0))
    one.end()
    ended = time.monotonic()
    assert other.event(Gone) == Gone(one.machine.process)
    assert time.monotonic() - ended < 1.0
    other.end()
    for backend in backends:
        backend.close()


def _threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("tailrace ")]
