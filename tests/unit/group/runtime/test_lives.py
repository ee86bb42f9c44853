"""How runtimes begin and end, share, and find each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import HubClosed
from tailrace.group.actions import (
    Send,
)
from tailrace.group.events import (
    Gone,
    Received,
)
from tailrace.group.loop import Loop
from tailrace.group.messages import Ping
from tailrace.group.runtime import Runtime, join
from tailrace.group.times import Times
from tailrace.group.transport import Receiver, Transport, WithinProcess
from tests.integration.processes import ended_well, fork
from tests.unit.group.runtime.scene import SUBSCRIBED, Scene, threads
from tests.unit.group.runtime.scripted import Consumer, Scripted


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
    assert not threads()
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
        "from tailrace.group.times import Times;"
        "from tests.unit.group.runtime.scripted import Consumer;"
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


class Parting(WithinProcess):
    """A transport that notes how it ends."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__("p", receiver)
        self.ends: list[str] = []

    def flush(self, timeout_s: float) -> None:
        self.ends.append("flush")

    def close(self) -> None:
        self.ends.append("close")


def test_what_was_said_last_has_time_to_leave_the_process() -> None:
    parting: list[Parting] = []

    def transport(receiver: Receiver) -> Transport:
        parting.append(Parting(receiver))
        return parting[0]

    def nothing(_: object) -> None:
        raise AssertionError

    clock = SystemClock()
    does = {"submit": nothing, "beat": nothing, "look": nothing}
    loop = Loop(Scripted(), {}, clock, transport=transport, **does)
    loop.finish(0.0)
    loop.run()
    assert parting[0].ends == ["flush", "close"]
