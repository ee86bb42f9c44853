"""What befalls a runtime: bugs in its threads, a hub that is closed, a store that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import BackendUnavailable, HubClosed
from tailrace.group.actions import (
    Beat,
    CommitGrants,
    Elect,
    Look,
    NewGrant,
    Probe,
    Record,
)
from tailrace.group.events import (
    Elected,
    Gone,
    GrantsUnknown,
    LeaderFound,
)
from tailrace.group.history import read_history
from tailrace.group.worker import Worker
from tests.unit.group.runtime.scene import SUBSCRIBED, Scene, threads
from tests.unit.group.runtime.scripted import Consumer
from tests.waiting import until


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
    until(lambda: not threads())
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


def test_of_history_that_waits_to_be_written_the_oldest_is_lost_first(
    embedded: EmbeddedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.group.worker.LINES_MAX", 3)
    worker = Worker(embedded, "p", "process 1", SystemClock(), tell=_raise, check=_raise)
    for number in range(10):
        worker.submit(Record("billing", "granted", epoch=number))
    worker.finish()
    worker.run()
    assert [line.epoch for line in read_history(embedded, "billing")] == [7, 8, 9]


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
