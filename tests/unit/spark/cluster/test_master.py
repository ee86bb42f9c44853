"""A master that is not there, does not answer, or is something else."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.errors import BackendUnavailable, ConfigError
from tailrace.spark.cluster import master
from tailrace.spark.cluster.application import NoExecutors
from tailrace.spark.cluster.executors import no_executors
from tailrace.spark.cluster.master import check_address

REPORTED_S = 15
NO_SUCH_FILE = struct.pack(">qb", 9, 8)
"""The answer of a master: a message of the type that reports a failed stream."""


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nothing listens to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextmanager
def server(answer: bytes | None, meet: threading.Barrier | None = None) -> Iterator[int]:
    """The port of a server that answers the first bytes of each connection; None never answers.

    With `meet`, it answers when all servers that meet there have been asked.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return  # The test has ended.
                with connection:
                    connection.recv(1024)
                    if meet is not None:
                        meet.wait(master.FIRST_ANSWER_S)
                    connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def refusal(url: str) -> str:
    """Return why a master cannot be reached, which is said in time."""
    began = time.monotonic()
    with pytest.raises(BackendUnavailable) as refused:
        check_address(url)
    assert time.monotonic() - began < REPORTED_S
    return str(refused.value)


def test_a_master_that_cannot_be_reached_is_named_with_the_reason_and_the_way_out() -> None:
    with closed_port() as port:
        said = refusal(f"spark://127.0.0.1:{port}")
    assert f"cannot reach the Spark master spark://127.0.0.1:{port}: " in said
    assert "refuses the connection" in said
    assert "start the master, or set another one with --master" in said


def test_a_process_that_accepts_connections_and_is_silent_is_no_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(master, "FIRST_ANSWER_S", 0.2)
    with server(None) as port:
        said = refusal(f"spark://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} accepts connections, but does not answer within 0.2 s" in said


def test_the_web_page_of_a_master_is_no_master() -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert f"127.0.0.1:{port} is a web server" in refusal(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize("answer", [NO_SUCH_FILE, b"", b"\x15\x03\x03\x00\x02\x02\x50"])
def test_a_master_that_answers_or_wants_encryption_may_be_one(answer: bytes) -> None:
    with server(answer) as port:
        check_address(f"spark://127.0.0.1:{port}")


def test_one_host_of_several_that_answers_is_enough() -> None:
    with closed_port() as closed, server(None) as silent, server(NO_SUCH_FILE) as port:
        began = time.monotonic()
        check_address(f"spark://127.0.0.1:{closed},127.0.0.1:{silent},127.0.0.1:{port}")
    assert time.monotonic() - began < master.FIRST_ANSWER_S


def test_all_hosts_are_named_and_asked_at_once() -> None:
    both, page = threading.Barrier(2), b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with server(page, both) as first, server(page, both) as second, closed_port() as third:
        said = refusal(f"spark://127.0.0.1:{first},127.0.0.1:{second},127.0.0.1:{third}")
    assert f"127.0.0.1:{first} is a web server" in said
    assert f"127.0.0.1:{second} is a web server" in said
    assert f"127.0.0.1:{third} refuses the connection" in said


def test_a_name_that_takes_too_long_to_resolve_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()

    def resolve(*_arguments: object, **_keywords: object) -> list[object]:
        ended.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(master, "CONNECT_S", 0.1)
    monkeypatch.setattr(master, "FIRST_ANSWER_S", 0.1)
    try:
        assert "slow.example:7077 does not answer within" in refusal("spark://slow.example:7077")
    finally:
        ended.set()


@pytest.mark.parametrize("host", ["a..example", f"{'a' * 70}.example"])
def test_a_name_that_no_host_can_have_is_refused_at_once(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "CONNECT_S", 60.0)  # The time of a check that is not answered.
    assert f"{host}:7077 is an unknown host" in refusal(f"spark://{host}:7077")


@pytest.mark.parametrize(
    "url", ["local[*]", "local[2, 4]", "local", "local-cluster[2,1,1024]", "yarn", ""]
)
def test_a_master_without_an_address_is_not_checked(url: str) -> None:
    check_address(url)


def test_the_api_server_of_kubernetes_needs_no_answer() -> None:
    with server(None) as port:
        check_address(f"k8s://https://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "url", ["lokal", "local[two]", "10.0.0.7:7077", "http://10.0.0.7:7077", "spark:/10.0.0.7:7077"]
)
def test_what_is_no_master_is_refused_before_java_starts(url: str) -> None:
    with pytest.raises(ConfigError, match=r"no Spark master '.*' · valid: spark://HOST:7077, yarn"):
        check_address(url)


def test_a_bad_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="spark://host:port has no valid address"):
        check_address("spark://host:port")


def test_a_cluster_without_executors_that_has_lost_its_master_says_so() -> None:
    with closed_port() as port:
        error = no_executors(f"spark://127.0.0.1:{port}")
    assert isinstance(error, NoExecutors)
    assert (
        f"no executor has started: cannot reach the Spark master spark://127.0.0.1:{port}"
        in str(error)
    )
    with server(NO_SUCH_FILE) as port:
        error = no_executors(f"spark://127.0.0.1:{port}")
    assert "its workers have no free cores or memory" in str(error)
