"""A server of metrics and health: its answers, its bounds and its end."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from tailrace import telemetry
from tailrace.errors import ConfigError
from tailrace.operations.metrics import server as metrics_server
from tailrace.operations.metrics.server import CONNECTIONS_MAX, MetricsServer
from tailrace.reporting.address import Address
from tailrace.reporting.sample import Sample
from tests.support.scraped import Scraped, get
from tests.support.waiting import until

ANY = Address("127.0.0.1", 0)


class Source:
    """A source of one number."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.reason: str | None = None

    def samples(self) -> list[Sample]:
        if self.error is not None:
            raise self.error
        return [Sample(telemetry.WORKER_SHARDS, ("mailer",), 4)]

    def unready(self) -> str | None:
        return self.reason


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[MetricsServer]:
    with MetricsServer(ANY) as server:
        server.show(source)
        yield server


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each is not threading.main_thread()]


def test_metrics_are_served_as_text_for_prometheus(server: MetricsServer) -> None:
    connection = http.client.HTTPConnection(*server.address)
    connection.request("GET", "/metrics?name=x")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert b'tailrace_worker_shards{subscription="mailer"} 4' in answer.read()
    assert Scraped(server.url).value("worker_shards", subscription="mailer") == 4


def test_it_is_alive_from_the_start_and_ready_when_its_source_is(source: Source) -> None:
    with MetricsServer(ANY) as server:
        assert get(server.url, "/healthz") == (200, "ok\n")
        assert get(server.url, "/readyz") == (503, "starting\n")
        assert get(server.url).status == 200
        source.reason = "the worker of mailer has not joined its group"
        server.show(source)
        assert get(server.url, "/readyz") == (503, source.reason + "\n")
        source.reason = None
        assert get(server.url, "/readyz") == (200, "ready\n")


def test_other_paths_name_the_valid_ones(server: MetricsServer) -> None:
    assert get(server.url, "/") == (404, "valid: /metrics, /healthz, /readyz\n")


def test_head_has_no_body_and_other_methods_are_refused(server: MetricsServer) -> None:
    for method, status in (("HEAD", 200), ("POST", 501)):
        connection = http.client.HTTPConnection(*server.address)
        connection.request(method, "/metrics")
        answer = connection.getresponse()
        assert answer.status == status
        assert method != "HEAD" or answer.read() == b""


def test_an_error_of_the_source_is_logged_and_does_not_end_the_server(
    server: MetricsServer, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.error = RuntimeError("broken")
    assert get(server.url) == (500, "the log has the error\n")
    assert "the metrics could not be read" in caplog.text
    source.error = None
    assert get(server.url).status == 200


def test_a_port_in_use_is_an_error_that_names_it_and_what_to_do(server: MetricsServer) -> None:
    port = server.address.port
    with pytest.raises(ConfigError) as raised:
        MetricsServer(server.address)
    text = str(raised.value)
    assert f"metrics cannot be served at 127.0.0.1:{port}: another process uses port {port}" in text
    assert "--metrics PORT" in text


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"metrics cannot be served at 192\.0\.2\.1:0"):
        MetricsServer(Address("192.0.2.1", 0))


def test_it_listens_on_ipv6_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        server = MetricsServer(Address("::1", 0))
    except ConfigError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with server:
        assert get(server.url, "/healthz").status == 200


def test_after_its_end_nothing_listens_and_no_thread_is_left(source: Source) -> None:
    before = threads()
    server = MetricsServer(ANY)
    server.show(source)
    get(server.url)
    server.close()
    server.close()
    assert threads() == before
    with pytest.raises(OSError, match="refused"):
        get(server.url)
    with MetricsServer(server.address):
        pass


def test_clients_that_send_nothing_are_bounded_and_end_with_the_server(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 60.0)
    before = set(threading.enumerate())
    server = MetricsServer(ANY)
    server.show(source)
    silent = [socket.create_connection(server.address) for _ in range(CONNECTIONS_MAX)]
    until(lambda: len(set(threading.enumerate()) - before) >= CONNECTIONS_MAX + 1)
    refused = socket.create_connection(server.address)
    assert refused.recv(10) == b""
    silent.pop().close()
    until(lambda: len(set(threading.enumerate()) - before) <= CONNECTIONS_MAX)
    assert get(server.url).status == 200
    for connection in silent:
        connection.close()
    server.close()


def test_many_scrapes_at_a_time_are_answered(server: MetricsServer) -> None:
    found: list[int] = []

    def scrape() -> None:
        for _ in range(20):
            found.append(get(server.url).status)

    scraping = [threading.Thread(target=scrape) for _ in range(4)]
    for thread in scraping:
        thread.start()
    for thread in scraping:
        thread.join()
    assert found == [200] * 80
