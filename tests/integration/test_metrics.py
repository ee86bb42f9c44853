"""Metrics and health of commands, as Prometheus scrapes them."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.readers import file as file_reader
from tailrace.telemetry import METRICS, SERIES_MAX
from tailrace.topic.push_reporter import pushes_to
from tests.support.running_command import RunningCommand
from tests.support.scraped import Scraped, get
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

SHOP = """
from tailrace import App, Delivery, Reject

app = App()

@app.subscription("mailer", topic="orders")
def mail(order: Delivery[int]) -> None:
    if order.value < 0:
        raise Reject("negative")
"""

LAKE = """
[pipeline]
name = "lake"
engine = "direct"

[reader]
type = "file"
path = "in/*.jsonl"

[writer.out]
type = "file"
path = "out"
"""


SOURCE = """
[source]
name = "shop"

[reader]
type = "file"
path = "in/*.jsonl"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory of an app, a pipeline and a hub."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "lake.toml").write_text(LAKE)
    (tmp_path / "shop.toml").write_text(SOURCE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"id": 1}\n{"id": 2}\nbroken\n')
    return tmp_path


@pytest.fixture
def hub(shop: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(shop / "hub", sync="none") as hub:
        hub.create_topic("orders", int)
        yield hub


@pytest.fixture
def run(shop: Path) -> Iterator[Callable[..., RunningCommand]]:
    """Start a command. All its processes have ended at the end of the test."""
    commands: list[RunningCommand] = []

    def run(*arguments: str) -> RunningCommand:
        commands.append(RunningCommand(shop, *arguments))
        return commands[-1]

    yield run
    for command in commands:
        with command:
            pass


def url_of(command: RunningCommand) -> str:
    """Return the URL that a command prints."""
    command.await_output("/metrics")
    found = re.search(r"metrics: (http://\S+/metrics)", command.output)
    assert found is not None, command.output
    return found[1]


def await_ready(url: str) -> None:
    until(lambda: get(url, "/readyz").status == 200)


def push(hub: tailrace.Hub, *values: int) -> None:
    hub.topic("orders", int).push_many([(f"c{value % 40}", value) for value in values])


def test_one_scrape_answers_for_all_processes_of_a_supervisor(
    run: Callable[..., RunningCommand], hub: tailrace.Hub
) -> None:
    command = run("run", "shop:app", "--processes", "2", "--metrics", "0")
    url = url_of(command)
    assert get(url, "/healthz") == (200, "ok\n")
    await_ready(url)
    push(hub, *range(40))
    until(lambda: Scraped(url).value("worker_messages_total", outcome="succeeded") == 40)
    found = Scraped(url)
    assert found.value("worker_shards", subscription="mailer") == 4
    assert {each["process"] for each in found.labels("worker_shards")} == {"1", "2"}
    assert [found.value("process_up", process=each) for each in "12"] == [1, 1]
    assert len(found.labels("subscription_backlog_messages")) == 3, "once, not for each process"
    victim = command.children[0]
    os.kill(victim, signal.SIGKILL)
    until(lambda: Scraped(url).value("process_starts_total") == 3)
    await_ready(url)
    assert Scraped(url).value("process_up") == 2
    command.terminate()
    assert command.status() == 0, command.output
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_a_process_that_does_not_answer_is_reported_as_down(
    run: Callable[..., RunningCommand], hub: tailrace.Hub
) -> None:
    command = run("run", "shop:app", "--processes", "2", "--metrics", "0")
    url = url_of(command)
    await_ready(url)
    stopped = command.children[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        found = Scraped(url)
        assert found.value("process_up") == 1
        assert found.value("subscription_shards", subscription="mailer") in (None, 4)
        assert get(url, "/readyz").status == 503
        until(lambda: Scraped(url).value("subscription_shards", subscription="mailer") == 4)
    finally:
        os.kill(stopped, signal.SIGCONT)
    await_ready(url)


@pytest.mark.parametrize(
    ("arguments", "metric"),
    [
        (("run", "shop:app"), "worker_shards"),
        (("subscription", "run", "other", "shop.py:mail"), "worker_shards"),
        (("pipeline", "run", "lake.toml"), "writer_rows_total"),
        (("source", "run", "shop.toml"), "source_rows_total"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_command_that_runs_something_serves_metrics_until_it_ends(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, arguments: tuple[str, ...], metric: str
) -> None:
    hub.create_subscription("other", topic="orders")
    command = run(*arguments, "--metrics", "0")
    url = url_of(command)
    await_ready(url)
    until(lambda: Scraped(url).value(metric))
    command.terminate()
    assert command.status() == 0, command.output
    with pytest.raises(OSError, match="refused"):
        get(url)


def test_two_runs_at_one_port_get_an_error_that_names_it(
    run: Callable[..., RunningCommand], hub: tailrace.Hub
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for processes in ("1", "2"):
            command = run("run", "shop:app", "--processes", processes, "--metrics", port)
            assert command.status() == 2, command.output
            assert f"another process uses port {port}" in command.output
            assert "choose another one: --metrics PORT" in command.output


def test_every_declared_metric_is_reported(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("run", "shop:app", "--processes", "2", "--metrics", "0")
    url = url_of(command)
    await_ready(url)
    names = Scraped(url).names
    command.terminate()
    push(hub, 1, 2, -3)
    with tailrace.serve_metrics(hub, 0) as server:

        def scrape(now: Any) -> None:
            names.update(Scraped(server.url).names)

        with (
            hub.topic("orders", int).tail(group="billing", idle_timeout="100ms") as consumer,
            hub.topic("orders", int).producer() as producer,
        ):
            producer.push(1)
            assert list(consumer)
            scrape(None)
        pipeline = tailrace.Pipeline.from_file(shop / "lake.toml")
        pipeline.run(hub, once=True, progress=scrape)
        source = tailrace.Source("shop", file_reader(str(shop / "in" / "*.jsonl")))
        source.run(hub, once=True, progress=scrape)
        for number in range(SERIES_MAX):
            pushes_to(hub.backend, f"topic-{number}").pushed(1, 1, 0.1)
        scrape(None)
    assert METRICS.keys() - names == set()
    assert names - METRICS.keys() == set()
