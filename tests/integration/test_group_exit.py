"""A program that exits while one of its consumers runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tailrace

pytestmark = pytest.mark.part("groups")

PARTITIONS = 24
MESSAGES = 240

CONSUMING = f"""
import sys, threading, tailrace

hub = tailrace.open(sys.argv[1], sync="none", settings=tailrace.HubSettings.of(
    progress_interval="1ms"
))
got, some, all_of_them = [], threading.Event(), threading.Event()

def handler(delivery):
    got.append(delivery.value)
    if len(got) >= {MESSAGES}:
        some.set()
    if len(got) >= 2 * {MESSAGES}:
        all_of_them.set()

consumer = hub.topic("orders", int).tail(group="billing").start(handler)
assert some.wait(60)
"""

EXITING = """
sys.exit()
"""

LEAVING = f"""
def leave():
    threading.main_thread().join()
    hub.topic("orders", int).push_many([(f"k{{n}}", n) for n in range({MESSAGES}, 2 * {MESSAGES})])
    assert all_of_them.wait(60)
    consumer.shutdown()

threading.Thread(target=leave).start()
"""


def run(script: str, directory: Path) -> bytes:
    """Return the output of the program."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def hub(tmp_path: Path) -> tailrace.Hub:
    hub = tailrace.open(tmp_path / "hub", sync="none")
    topic = hub.create_topic("orders", int, partitions=PARTITIONS)
    topic.push_many([(f"k{n}", n) for n in range(MESSAGES)])
    return hub


def behind(hub: tailrace.Hub) -> int:
    return sum(lag.lag for lag in hub.group("billing").lag())


def test_a_program_may_exit_without_leaving_its_group(hub: tailrace.Hub, tmp_path: Path) -> None:
    assert b"RuntimeError" not in run(CONSUMING + EXITING, tmp_path / "hub")
    with hub, hub.topic("orders", int).tail(group="billing", until="end") as consumer:
        again = list(consumer)
    assert len(again) < MESSAGES


def test_a_consumer_may_continue_and_leave_after_the_main_thread_has_ended(
    hub: tailrace.Hub, tmp_path: Path
) -> None:
    assert run(CONSUMING + LEAVING, tmp_path / "hub") == b""
    with hub:
        assert behind(hub) == 0
