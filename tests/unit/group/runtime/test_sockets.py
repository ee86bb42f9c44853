"""Messages between processes: delivery, losses, and no blocking."""

from __future__ import annotations

import gc
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tailrace.group.protocol.messages import Disconnect, Message, Ping
from tailrace.group.runtime import sockets, wire
from tailrace.group.runtime.sockets import Sockets, processes_at, remove_socket
from tests.support.processes import ended_well, fork

LONG_S = 30.0


class Heard:
    """A receiver that records messages and losses."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message]] = []
        self.ended: list[str] = []

    def received(self, sender: str, message: Message) -> None:
        self.messages.append((sender, message))

    def disconnected(self, process: str) -> None:
        self.ended.append(process)


class Party:
    """Several transports in one process that send to each other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sockets: dict[str, Sockets] = {}
        self.heard: dict[str, Heard] = {}

    def __getitem__(self, process: str) -> Sockets:
        if process not in self.sockets:
            self.heard[process] = Heard()
            self.sockets[process] = Sockets(self.directory, process, self.heard[process])
        return self.sockets[process]

    def poll_until(self, done: Callable[[], bool], *processes: str) -> None:
        deadline = time.monotonic() + LONG_S
        while not done():
            assert time.monotonic() < deadline
            for process in processes or self.sockets:
                self.sockets[process].poll(0.001)


@pytest.fixture
def party(tmp_path: Path) -> Iterator[Party]:
    directory = tmp_path / "hub.sockets"
    party = Party(directory)
    gc.collect()  # what earlier tests left is not closed meanwhile
    before = _open_files()
    yield party
    for each in party.sockets.values():
        each.close()
    assert list(directory.iterdir()) == []
    assert _open_files() == before


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_messages_arrive_in_order_with_their_sender(party: Party) -> None:
    sent: list[Message] = [Ping(number, number) for number in range(100)]
    sent.append(Disconnect("billing", "b1"))
    _ = party["b"]
    for message in sent:
        party["a"].send("b", message)
    party.poll_until(lambda: len(party.heard["b"].messages) == len(sent), "b")
    assert party.heard["b"].messages == [("a", message) for message in sent]


def test_both_processes_may_send_at_once(party: Party) -> None:
    _ = party["a"], party["b"]
    party["a"].send("b", Ping(1, 0))
    party["b"].send("a", Ping(2, 0))
    party.poll_until(lambda: bool(party.heard["a"].messages and party.heard["b"].messages))
    assert party.heard["a"].messages == [("b", Ping(2, 0))]
    assert party.heard["b"].messages == [("a", Ping(1, 0))]
    assert not party.heard["a"].ended


def test_a_message_to_the_own_process_arrives_at_once(party: Party) -> None:
    party["a"].send("a", Ping(1, 0))
    assert party.heard["a"].messages == [("a", Ping(1, 0))]


def test_sending_to_a_missing_process_reports_it_and_raises_nothing(party: Party) -> None:
    party["a"].send("nobody", Ping(1, 0))
    assert party.heard["a"].ended == ["nobody"]


def test_both_sides_of_a_connection_notice_when_the_other_ends(party: Party) -> None:
    _ = party["b"], party["c"]
    party["a"].send("b", Ping(1, 0))
    party["c"].send("a", Ping(1, 0))
    party.poll_until(lambda: bool(party.heard["b"].messages and party.heard["a"].messages))
    party.sockets.pop("b").close()
    party.sockets.pop("c").close()
    party.poll_until(lambda: set(party.heard["a"].ended) == {"b", "c"}, "a")


def test_a_process_that_comes_back_is_connected_to_again(party: Party) -> None:
    _ = party["b"]
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: bool(party.heard["b"].messages), "b")
    party.sockets.pop("b").close()
    party.poll_until(lambda: party.heard["a"].ended == ["b"], "a")
    _ = party["b"]
    party["a"].send("b", Ping(2, 0))
    party.poll_until(lambda: party.heard["b"].messages == [("a", Ping(2, 0))], "b")


def test_a_message_longer_than_the_kernel_takes_arrives_whole(party: Party) -> None:
    long = Disconnect("billing", "b" * 1_000_000)
    _ = party["b"]
    party["a"].send("b", long)
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: len(party.heard["b"].messages) == 2)
    assert party.heard["b"].messages == [("a", long), ("a", Ping(1, 0))]


def test_flushing_ends_when_all_is_sent_or_the_time_is_over(party: Party) -> None:
    long = Disconnect("billing", "b" * 1_000_000)
    _ = party["b"]
    party["a"].send("b", long)
    before = time.monotonic()
    party["a"].flush(0.01)
    assert time.monotonic() - before < LONG_S
    party["a"].close()


def test_a_message_that_is_too_long_is_dropped_and_others_are_sent(
    party: Party, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_BYTES_MAX", 1000)
    _ = party["b"]
    party["a"].send("b", Disconnect("billing", "b" * 1000))
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: party.heard["b"].messages == [("a", Ping(1, 0))], "b")
    assert "too long" in caplog.text


def test_a_peer_that_reads_nothing_costs_a_bounded_buffer_and_no_time(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "OUTGOING_BYTES_MAX", 100_000)
    _ = party["b"]
    long = Disconnect("billing", "b" * 10_000)
    sender = party["a"]
    for _ in range(1000):
        sender.send("b", long)
        if party.heard["a"].ended:
            break
    assert party.heard["a"].ended == ["b"]
    party["a"].send("b", Ping(7, 0))
    party.poll_until(lambda: ("a", Ping(7, 0)) in party.heard["b"].messages)


def _connect(party: Party, process: str) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(party.directory / f"{process}.sock"))
    return raw


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def test_a_frame_that_does_not_decode_is_dropped_and_logged_and_the_next_is_read(
    party: Party, caplog: pytest.LogCaptureFixture
) -> None:
    _ = party["b"]
    newer = msgspec.msgpack.encode(["z", {"type": "Handshake", "number": 1}])
    good = msgspec.msgpack.encode(["z", Ping(1, 2)])
    with _connect(party, "b") as raw:
        raw.sendall(_frame(newer) + _frame(b"\xc1 garbage") + _frame(b"") + _frame(good))
        party.poll_until(lambda: party.heard["b"].messages == [("z", Ping(1, 2))])
    assert caplog.text.count("cannot read") == 1


def test_a_field_that_is_not_known_yet_does_no_harm(party: Party) -> None:
    _ = party["b"]
    newer = ["z", {"type": "Ping", "number": 1, "roster_version": 2, "mood": "good"}]
    with _connect(party, "b") as raw:
        raw.sendall(_frame(msgspec.msgpack.encode(newer)))
        party.poll_until(lambda: party.heard["b"].messages == [("z", Ping(1, 2))])


def test_a_connection_that_brings_an_impossible_length_is_dropped(
    party: Party, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    _ = party["b"]
    with _connect(party, "b") as raw:
        raw.sendall(b"\xff" * 100)
        party.poll_until(lambda: "closed a connection" in caplog.text)
        assert raw.recv(1) == b""
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: party.heard["b"].messages == [("a", Ping(1, 0))])


def test_connections_beyond_the_bound_are_refused_until_another_has_ended(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "INCOMING_MAX", 2)
    receiver = party["b"]
    opened = [_connect(party, "b") for _ in range(4)]
    receiver.poll(LONG_S)
    assert [_is_refused(raw) for raw in opened] == [False, False, True, True]
    opened[0].close()
    receiver.poll(LONG_S)
    opened.append(_connect(party, "b"))
    receiver.poll(LONG_S)
    assert not _is_refused(opened[-1])
    for raw in opened:
        raw.close()
    receiver.poll(LONG_S)


def _is_refused(raw: socket.socket) -> bool:
    raw.setblocking(False)
    try:
        return raw.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_process_that_accepts_slowly_is_not_reported_as_gone(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_BACKLOG", 0)
    receiver, sender = party["b"], party["a"]
    with _connect(party, "b"):
        sender.send("b", Ping(1, 0))
        assert party.heard["a"].ended == []
        receiver.poll(LONG_S)
        sender.send("b", Ping(2, 0))
        party.poll_until(lambda: party.heard["b"].messages == [("a", Ping(2, 0))])


def test_messages_that_come_in_pieces_are_put_together(party: Party) -> None:
    _ = party["b"]
    data = _frame(msgspec.msgpack.encode(["z", Ping(1, 2)])) * 3
    with _connect(party, "b") as raw:
        for byte in data:
            raw.send(bytes([byte]))
            party["b"].poll(0)
        party.poll_until(lambda: len(party.heard["b"].messages) == 3)


def test_a_directory_deeper_than_an_address_has_room_for_serves_as_well(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 10, "hub.sockets")
    deep.parent.mkdir(parents=True)
    assert len(os.fsencode(deep)) > 108
    heard = Heard()
    one, other = Sockets(deep, "one", Heard()), Sockets(deep, "other", heard)
    one.send("other", Ping(1, 0))
    other.poll(LONG_S)
    assert heard.messages == [("one", Ping(1, 0))]
    one.close()
    other.close()


def test_one_poll_reads_all_pending_messages_of_old_and_new_connections(party: Party) -> None:
    _ = party["d"]
    party["a"].send("d", Ping(0, 0))
    party.poll_until(lambda: bool(party.heard["d"].messages), "d")
    for number in range(100):
        for sender in "abc":
            party[sender].send("d", Ping(number, 1))
    party["d"].poll(0)
    assert len(party.heard["d"].messages) == 1 + 3 * 100


def test_a_wake_of_another_thread_ends_a_poll_and_after_closing_does_nothing(party: Party) -> None:
    party["a"].wake()
    party["a"].poll(LONG_S)
    party["a"].close()
    party["a"].wake()


def test_a_forked_child_keeps_nothing_open_and_the_parent_continues(party: Party) -> None:
    _ = party["b"]
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: bool(party.heard["b"].messages), "b")

    def check() -> None:
        for entry in os.scandir("/proc/self/fd"):
            if os.path.exists(entry.path):
                assert "hub.sockets" not in os.readlink(entry.path)
        for each in party.sockets.values():
            each.close()
            each.wake()

    assert ended_well(fork(check))
    assert sorted(processes_at(party.directory)) == ["a", "b"]
    party["a"].send("b", Ping(2, 0))
    party.poll_until(lambda: len(party.heard["b"].messages) == 2, "b")
    assert not party.heard["a"].ended


def test_a_forked_child_does_not_hide_the_death_of_its_parent(party: Party) -> None:
    """The parent's side is closed while a child that was forked from it lives."""
    _ = party["b"]
    party["a"].send("b", Ping(1, 0))
    party.poll_until(lambda: bool(party.heard["b"].messages), "b")
    go, stay = os.pipe()

    def live_on() -> None:
        os.close(stay)
        os.read(go, 1)

    pid = fork(live_on)
    party.sockets.pop("a").close()
    party.poll_until(lambda: party.heard["b"].ended == ["a"], "b")
    os.close(stay)
    os.close(go)
    assert ended_well(pid)


def test_the_socket_of_a_dead_process_can_be_found_and_removed(tmp_path: Path) -> None:
    assert processes_at(tmp_path / "nothing") == []
    (tmp_path / "dead.sock").touch()
    (tmp_path / "note.txt").touch()
    assert processes_at(tmp_path) == ["dead"]
    remove_socket(tmp_path, "dead")
    remove_socket(tmp_path, "dead")
    assert processes_at(tmp_path) == []
