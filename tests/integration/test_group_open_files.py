"""Workers of a process that may open no more files: they wait, and get every message."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tailrace
from tailrace import aio
from tests.support.open_files import no_more_open_files
from tests.support.processes import Child, Report
from tests.support.waiting import in_thread, until

pytestmark = pytest.mark.part("groups")

MESSAGES = 50
SMALL = tailrace.HubSettings.of(segment_bytes=64)
"""A segment for each message, so that a reader has to open files all the time."""


class Outages(logging.Handler):
    """The outages that a worker logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        logging.getLogger("tailrace.group").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's text."""
        self.texts.append(record.getMessage())


class Worker:
    """A worker in a thread: the values that it got, and the error that ended it."""

    def __init__(self, run: Callable[[Path, Worker], None], directory: Path) -> None:
        self.got: list[int] = []
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._run, self._directory = run, directory
        in_thread(self._work)

    @property
    def ended(self) -> bool:
        """True if the worker has got every message, or an error has ended it."""
        return self.done.is_set() or self.error is not None

    def handle(self, delivery: tailrace.Delivery[int]) -> None:
        """Keep a value."""
        self.got.append(delivery.value)
        if len(set(self.got)) == MESSAGES:
            self.done.set()

    def _work(self) -> None:
        try:
            self._run(self._directory, self)
        except BaseException as error:
            self.error = error


def _in_thread(directory: Path, worker: Worker) -> None:
    with tailrace.open(directory) as hub:
        consumer = hub.topic("orders", int).tail(group="billing").start(worker.handle)
        until(lambda: worker.done.is_set() or not consumer.running)
        consumer.shutdown()


def _on_a_loop(directory: Path, worker: Worker) -> None:
    async def run() -> None:
        async with await aio.open(directory) as hub:
            consumer = await (await hub.topic("orders", int)).tail(group="billing")

            async def handle(delivery: tailrace.Delivery[int]) -> None:
                worker.handle(delivery)
                if worker.done.is_set():
                    consumer.shutdown()

            await consumer.run(handle)

    asyncio.run(run())


def _work(report: Report, run: Callable[[Path, Worker], None], directory: Path) -> None:
    outages, worker = Outages(), Worker(run, directory)
    until(lambda: worker.got or worker.ended)
    with no_more_open_files():
        report("no more files")
        until(lambda: outages.texts or worker.ended)
    until(lambda: worker.ended)
    report((outages.texts, worker.error, sorted(set(worker.got))))


@pytest.mark.parametrize("run", [_in_thread, _on_a_loop], ids=["thread", "loop"])
def test_a_worker_that_may_not_open_a_segment_waits_and_gets_every_message(
    run: Callable[[Path, Worker], None], tmp_path: Path
) -> None:
    directory = tmp_path / "hub"
    with tailrace.open(directory, sync="none", settings=SMALL) as hub:
        orders = hub.create_topic("orders", int, partitions=1)
        orders.push(0)
        child = Child(_work, run, directory)
        assert child.next_report() == "no more files"
        for number in range(1, MESSAGES):
            orders.push(number)
        outages, error, got = child.next_report()
        list(child.rest())
    assert error is None
    assert got == list(range(MESSAGES))
    assert any("Too many open files" in text for text in outages)
