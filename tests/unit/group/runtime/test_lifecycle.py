"""Start and end of runtimes, and how sessions and processes share them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import Backend
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.clock import SystemClock
from tailrace.errors import HubClosed
from tailrace.group.protocol.actions import (
    Send,
)
from tailrace.group.protocol.events import (
    Gone,
    Received,
)
from tailrace.group.protocol.messages import Ping
from tailrace.group.protocol.times import Times
from tailrace.group.runtime.loop import DISCONNECT_PROBES_S, Loop
from tailrace.group.runtime.runtime import Runtime, join
from tailrace.group.runtime.transport import Receiver, Transport, WithinProcess
from tests.support.processes import ended_well, fork
from tests.unit.group.runtime.scripted_runtime import (
    SUBSCRIBED,
    RecordingSession,
    ScriptedMachine,
    ScriptedRuntime,
    threads,
)


def _join(backend: Backend, consumer: RecordingSession) -> Runtime:
    return join(backend, consumer, Times(), 0.01)


def test_sessions_of_a_hub_share_a_runtime_that_ends_with_the_last(
    embedded: EmbeddedBackend,
) -> None:
    one = _join(embedded, RecordingSession("s1"))
    assert _join(embedded, RecordingSession("s2")) is one
    one.leave("s1")
    assert one.until("s2") == float("-inf")
    one.leave("s2")
    assert embedded.beats(f"process/{one.process}") is None
    with pytest.raises(HubClosed):
        one.until("s2")
    other = _join(embedded, RecordingSession("s3"))
    assert other.process != one.process
    other.leave("s3")


def test_closing_the_hub_ends_its_consumers(tmp_path: Path) -> None:
    hub = tailrace.open(tmp_path / "hub", sync="none")
    consumer = RecordingSession()
    runtime = _join(hub.backend, consumer)
    hub.close()
    assert isinstance(consumer.error, HubClosed)
    assert not threads()
    runtime.leave("s1")
    assert not list((tmp_path / "hub" / "hub.sockets").iterdir())


def test_files_of_a_killed_process_are_removed_by_the_next(
    embedded: EmbeddedBackend, tmp_path: Path
) -> None:
    def die() -> None:
        _join(embedded, RecordingSession())
        os.kill(os.getpid(), signal.SIGKILL)

    assert not ended_well(fork(die))
    sockets, holds = tmp_path / "hub" / "hub.sockets", tmp_path / "hub" / "hub.holds"
    assert len(list(sockets.iterdir())) == len(list(holds.iterdir())) == 1
    runtime = _join(embedded, RecordingSession())
    assert [path.stem for path in sockets.iterdir()] == [runtime.process]
    assert [path.stem for path in holds.iterdir()] == [f"process%2F{runtime.process}"]
    runtime.leave("s1")


def test_a_forked_child_starts_its_own_runtime_and_leaves_its_parent_alone(
    embedded: EmbeddedBackend,
) -> None:
    parent = _join(embedded, RecordingSession())

    def consume() -> None:
        with pytest.raises(HubClosed, match="fork"):
            parent.until("s1")
        parent.post(SUBSCRIBED)
        parent.leave("s1")
        child = _join(embedded, RecordingSession("s2"))
        assert child.process != parent.process
        assert embedded.beats(f"process/{parent.process}") is not None
        child.leave("s2")

    for _ in range(3):
        assert ended_well(fork(consume))
    assert parent.until("s1") == float("-inf")
    parent.leave("s1")


def test_a_program_that_exits_without_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import sys, tailrace; from tailrace.group.runtime.runtime import join;"
        "from tailrace.group.protocol.times import Times;"
        "from tests.unit.group.runtime.scripted_runtime import RecordingSession;"
        "join(tailrace.open(sys.argv[1], sync='none').backend, RecordingSession(), Times(), 1.0)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "hub"], check=True, timeout=60)
    assert not list((tmp_path / "hub" / "hub.sockets").iterdir())
    assert not list((tmp_path / "hub" / "hub.holds").iterdir())


def test_two_processes_exchange_messages_and_notice_each_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the other process may take seconds from closing its socket to its end.
    probes_s = (*DISCONNECT_PROBES_S, 5.0, 30.0)
    monkeypatch.setattr("tailrace.group.runtime.loop.DISCONNECT_PROBES_S", probes_s)
    backends = [EmbeddedBackend.open(tmp_path / "hub", sync="none") for _ in range(2)]
    one, other = map(ScriptedRuntime, backends)
    one.do(Send(other.machine.process, Ping(7, 0)))
    assert other.event(Received) == Received(one.machine.process, Ping(7, 0))
    one.end()
    # The machine asks for no probe: only the end of the connection causes some.
    assert other.event(Gone) == Gone(one.machine.process)
    other.end()
    for backend in backends:
        backend.close()


class Parting(WithinProcess):
    """A transport that records how it ends."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__("p", receiver)
        self.ends: list[str] = []

    def flush(self, timeout_s: float) -> None:
        self.ends.append("flush")

    def close(self) -> None:
        self.ends.append("close")


def test_the_last_messages_are_sent_before_the_process_ends() -> None:
    parting: list[Parting] = []

    def transport(receiver: Receiver) -> Transport:
        parting.append(Parting(receiver))
        return parting[0]

    def nothing(_: object) -> None:
        raise AssertionError

    clock = SystemClock()
    does = {"submit": nothing, "beat": nothing, "probe": nothing}
    loop = Loop(ScriptedMachine(), {}, clock, transport=transport, **does)
    loop.finish(0.0)
    loop.run()
    assert parting[0].ends == ["flush", "close"]
