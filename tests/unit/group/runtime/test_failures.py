"""Failures of a runtime: bugs in its threads, a closed hub, a failing store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import BackendUnavailable, HubClosed
from tailrace.group.protocol.actions import (
    Beat,
    CommitGrants,
    Elect,
    FindLeader,
    NewGrant,
    Probe,
    WriteHistory,
)
from tailrace.group.protocol.events import (
    Elected,
    Gone,
    GrantsUnknown,
    LeaderFound,
)
from tailrace.group.runtime.store_worker import StoreWorker
from tailrace.group.store.history import read_history
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.unit_source import UnitSources
from tests.support.waiting import until
from tests.unit.group.runtime.scripted_runtime import (
    SUBSCRIBED,
    RecordingSession,
    ScriptedRuntime,
    threads,
)


def _raise(*_: object) -> NoReturn:
    raise ZeroDivisionError("unexpected")


def _break_loop(scripted: ScriptedRuntime, _: pytest.MonkeyPatch) -> None:
    scripted.machine.answer = _raise
    scripted.runtime.post(SUBSCRIBED)


def _break_worker(scripted: ScriptedRuntime, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tailrace.group.store.grants.find_leader", _raise)
    scripted.do(FindLeader("billing"))


def _break_watcher(scripted: ScriptedRuntime, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(type(scripted.backend.store), "watch", _raise)
    scripted.do(Beat(0.0))


def _break_saver(scripted: ScriptedRuntime, _: pytest.MonkeyPatch) -> None:
    scripted.session.saves = _raise
    scripted.runtime.save_soon("s1")


@pytest.mark.parametrize("fault", [_break_loop, _break_worker, _break_watcher, _break_saver])
def test_an_unexpected_error_in_a_thread_fails_every_session_and_ends_all_threads(
    scripted: ScriptedRuntime,
    fault: Callable[[ScriptedRuntime, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = RecordingSession("s2", "other")
    scripted.runtime.add(other)
    fault(scripted, monkeypatch)
    until(lambda: scripted.session.error and other.error)
    for error in (scripted.session.error, other.error):
        assert isinstance(error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        scripted.runtime.until("s1")
    assert "consuming in groups failed" in caplog.text
    until(lambda: not threads())
    assert scripted.backend.beats(f"process/{scripted.machine.process}") is None
    late = RecordingSession("s3")
    scripted.runtime.add(late)
    assert isinstance(late.error, ZeroDivisionError)


def test_a_hub_that_is_closed_underneath_is_reported_as_closed(tmp_path: Path) -> None:
    backend = EmbeddedBackend.open(tmp_path, sync="none")
    scripted = ScriptedRuntime(backend)
    backend.close()
    scripted.do(FindLeader("billing"))
    until(lambda: isinstance(scripted.session.error, HubClosed))
    scripted.end()


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


def test_a_failing_store_is_logged_once_and_retried(
    scripted: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failing = _Failing(monkeypatch, scripted.backend.store, "commit")
    scripted.do(WriteHistory("billing", "joined"), *(Elect("billing", 0) for _ in range(10)))
    until(lambda: failing.tries >= 10)
    failing.error = None
    until(lambda: read_history(scripted.backend, "billing"), "history is lost")
    assert scripted.session.error is None
    assert caplog.text.count("access to the store of the hub failed") == 1
    assert not scripted.machine.of(Elected)


def test_the_oldest_pending_lines_of_history_are_dropped_first(
    embedded: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.runtime.store_worker.LINES_MAX", 3)
    worker = StoreWorker(
        embedded,
        "p",
        "process 1",
        SystemClock(),
        UnitSources(PartitionUnits(embedded)),
        post=_raise,
        check=_raise,
    )
    for number in range(10):
        worker.submit(WriteHistory("billing", "granted", epoch=number))
    worker.finish()
    worker.run()
    assert [line.epoch for line in read_history(embedded, "billing")] == [7, 8, 9]


def test_a_failed_commit_of_grants_is_reported_as_unknown(
    scripted: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Failing(monkeypatch, scripted.backend.store, "commit")
    scripted.do(CommitGrants("billing", 3, 1, (), (NewGrant("orders/0.0", "b", "p", 0),), ()))
    assert scripted.event(GrantsUnknown) == GrantsUnknown("billing", 3)


def test_a_failed_probe_says_nothing_about_the_process(
    scripted: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted.backend.hold("process/p", "another"):
        failing = _Failing(monkeypatch, scripted.runtime._loop, "_probe")
        scripted.do(Probe("p"), FindLeader("billing"))
        scripted.event(LeaderFound)
        assert failing.tries == 1
        assert not scripted.machine.of(Gone)
