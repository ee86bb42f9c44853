"""`tailrace run` with real processes that are killed and stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tailrace
from tests.support.processes import await_death, is_alive
from tests.support.running_command import RunningCommand
from tests.support.waiting import until

pytestmark = pytest.mark.part("subscriptions")

SHOP = """
import os, time
from tailrace import App, Delivery, Retry

app = App()
app.topic("orders", int)
other = App()

@app.subscription("mailer", topic="orders", retry=Retry(8, first="1ms", max="1ms"))
@other.subscription("reminder", topic="missing")
def mail(order: Delivery[int]) -> None:
    with open("calls", "a") as calls:
        calls.write(f"{order.value} {os.getpid()}\\n")
    while order.value < 0 and not os.path.exists("may-end"):
        time.sleep(0.01)
    with open("ended", "a") as ended:
        ended.write(f"{order.value}\\n")

@app.subscription("billing", topic="orders")
async def bill(order: Delivery[int]) -> None: ...
"""
"""An app whose handler waits for a file if the value is negative."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory of the app, its hub and its files."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def hub(shop: Path) -> Iterator[tailrace.Hub]:
    with tailrace.open(shop / "hub", sync="none") as hub:
        hub.create_topic("orders", int)
        yield hub


@pytest.fixture
def run(shop: Path) -> Iterator[Callable[..., RunningCommand]]:
    """Start `tailrace run`. All its processes have ended at the end of the test."""
    commands: list[RunningCommand] = []

    def run(*arguments: str) -> RunningCommand:
        commands.append(RunningCommand(shop, "run", *arguments))
        return commands[-1]

    yield run
    for command in commands:
        with command:
            pass


def push(hub: tailrace.Hub, *values: int) -> None:
    hub.topic("orders", int).push_many([(f"c{value % 40}", value) for value in values])


def lines(shop: Path, name: str) -> list[str]:
    file = shop / name
    return file.read_text().splitlines() if file.exists() else []


def ended(shop: Path) -> list[int]:
    return sorted(map(int, lines(shop, "ended")))


def callers(shop: Path) -> set[int]:
    """Return the processes that have called the handler."""
    return {int(line.split()[1]) for line in lines(shop, "calls")}


def test_a_process_that_is_killed_is_started_again_and_no_message_is_lost(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app", "--processes", "2")
    command.await_output("is ready", 2)
    push(hub, *range(40))
    until(lambda: len(ended(shop)) == 40)
    victim = min(callers(shop))
    os.kill(victim, signal.SIGKILL)
    command.await_output("was killed by SIGKILL; it is started again in")
    push(hub, *range(40, 80))
    until(lambda: set(ended(shop)) >= set(range(80)))
    command.await_output("is ready", 3)
    assert len(command.children) == 2
    command.terminate()
    assert command.status() == 0, command.output


def test_sigterm_lets_the_calls_of_all_processes_end(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app", "--processes", "2")
    command.await_output("is ready", 2)
    push(hub, *range(-40, 0))
    until(lambda: len(callers(shop)) == 2)
    command.terminate()
    push(hub, 1)
    (shop / "may-end").touch()
    assert command.status() == 0, command.output
    called = {int(line.split()[0]) for line in lines(shop, "calls")}
    assert sorted(called) == ended(shop)
    assert not any(map(is_alive, callers(shop)))


def test_sigterm_to_all_processes_at_once_drains_too(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app", "--processes", "2")
    command.await_output("is ready", 2)
    push(hub, *range(-40, 0))
    until(lambda: len(callers(shop)) == 2)
    for _ in range(3):
        for child in command.children:
            os.kill(child, signal.SIGTERM)
    command.terminate()
    (shop / "may-end").touch()
    assert command.status() == 0, command.output


def test_calls_that_do_not_end_in_time_are_left_and_the_status_is_3(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app", "--processes", "2", "--drain-timeout", "100ms")
    command.await_output("is ready", 2)
    push(hub, -1)
    until(lambda: callers(shop))
    command.terminate()
    assert command.status() == 3, command.output
    assert "stopped with messages in flight; they will be redelivered" in command.output


def test_processes_drain_when_their_supervisor_is_killed(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app", "--processes", "2")
    command.await_output("is ready", 2)
    push(hub, *range(-40, 0))
    until(lambda: len(callers(shop)) == 2)
    children = command.children
    command.kill()
    (shop / "may-end").touch()
    for child in children:
        await_death(child)
    called = {int(line.split()[0]) for line in lines(shop, "calls")}
    assert sorted(called) == ended(shop)


def test_one_process_drains_at_sigterm(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop.py", "--only", "mailer")
    command.await_output('"message":"running mailer"')
    push(hub, -1)
    until(lambda: callers(shop))
    assert callers(shop) == {command.pid}
    command.terminate()
    command.await_output("waiting for the calls in flight")
    (shop / "may-end").touch()
    assert command.status() == 0, command.output
    assert ended(shop) == [-1]


def test_a_second_signal_ends_one_process_at_once(
    run: Callable[..., RunningCommand], hub: tailrace.Hub, shop: Path
) -> None:
    command = run("shop:app")
    command.await_output("running mailer, billing")
    push(hub, -1)
    until(lambda: callers(shop))
    command.terminate()
    command.await_output("waiting for the calls in flight")
    command.interrupt()
    assert command.status() == 3
    assert "ended at once; messages in flight will be redelivered" in command.output


def test_a_subscription_that_is_deleted_ends_the_app_with_that_error(
    run: Callable[..., RunningCommand], hub: tailrace.Hub
) -> None:
    command = run("shop:app", "--processes", "2")
    command.await_output("is ready", 2)
    hub.subscription("billing").delete()
    assert command.status() == 1, command.output
    assert "UnknownSubscription: no subscription 'billing'" in command.output
    assert "the app is stopped" in command.output


def test_a_topic_that_does_not_exist_ends_all_processes_and_is_said_once(
    run: Callable[..., RunningCommand], hub: tailrace.Hub
) -> None:
    command = run("shop:other", "--processes", "3")
    assert command.status() == 1, command.output
    assert command.output.count("UnknownTopic: no topic 'missing'") == 1
    assert "tailrace topic create missing --partitions 4" in command.output


@pytest.mark.parametrize("processes", ["1", "3"])
def test_an_error_of_the_users_module_is_shown_once_with_its_traceback(
    run: Callable[..., RunningCommand], shop: Path, processes: str
) -> None:
    (shop / "broken.py").write_text("import tailrace\napp = tailrace.App(7)\n")
    command = run("broken:app", "--processes", processes)
    assert command.status() == 2, command.output
    assert command.output.count('broken.py", line 2, in <module>') == 1
    assert "ConfigError: broken cannot be imported: InvalidValue: hub is 7" in command.output
    assert "importlib" not in command.output
    assert not (shop / "hub").exists()
