"""A waiting command ends by a closed pipe and by signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from tailrace.cli.terminal.broken_pipe import wait_for_closed_pipe, when_pipe_closes
from tailrace.cli.topic.tail import _stop
from tailrace.hub.hub import Hub
from tailrace.terminal.signals import Signals
from tailrace.testing import MemoryBackend


class Pipe:
    """The output of this process within a block, and its only reader."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def fileno(self) -> int:
        return self.writer

    def stop_reading(self) -> None:
        os.close(self.reader)
        self.reader = -1

    def close(self) -> None:
        os.close(self.writer)
        if self.reader >= 0:
            os.close(self.reader)


@contextmanager
def piped() -> Iterator[Pipe]:
    with closing(Pipe()) as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", pipe)
        yield pipe


def lose_the_reader(call: Callable[[], None], error: Exception | None = None) -> None:
    """Run a block whose reader closes the pipe, to its end or to an error."""
    called = threading.Event()

    def noted() -> None:
        call()
        called.set()

    with piped() as pipe, when_pipe_closes(noted):
        pipe.stop_reading()
        assert called.wait(60)
        if error is not None:
            raise error


def test_a_waiting_command_is_notified_as_soon_as_its_reader_closes_the_pipe() -> None:
    with piped() as pipe:
        wait_for_closed_pipe(0)
        pipe.stop_reading()
        with pytest.raises(BrokenPipeError):
            wait_for_closed_pipe(60)


def test_a_block_whose_reader_closes_the_pipe_is_notified_once_and_ends_as_a_broken_pipe() -> None:
    calls: list[str] = []
    with pytest.raises(BrokenPipeError):
        lose_the_reader(lambda: calls.append("gone"))
    assert calls == ["gone"]


def test_a_block_whose_reader_closes_the_pipe_ends_with_the_error_that_it_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        lose_the_reader(lambda: None, ZeroDivisionError())


def test_a_block_whose_reader_stays_ends_with_no_call_and_no_thread() -> None:
    before = set(threading.enumerate())
    with piped(), when_pipe_closes(pytest.fail):
        assert set(threading.enumerate()) - before
    assert not set(threading.enumerate()) - before


def test_a_consumer_ends_in_order_at_the_first_signal_and_at_once_at_the_second() -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        consumer = hub.create_topic("orders").tail(group="billing")
        with Signals() as signals:
            signals.received = partial(_stop, consumer, signals)
            signal.raise_signal(signal.SIGINT)
            assert consumer._session.stopping
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
