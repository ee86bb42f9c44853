"""What ends a command that waits: a reader that is gone, and signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from tailrace.cli.listening import wait_for_reader, when_reader_goes
from tailrace.cli.signals import Signals
from tailrace.cli.tail import _stop
from tailrace.hub import Hub
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
    """A block whose reader goes, and which then goes on to its end or to an error."""
    called = threading.Event()

    def noted() -> None:
        call()
        called.set()

    with piped() as pipe, when_reader_goes(noted):
        pipe.stop_reading()
        assert called.wait(60)
        if error is not None:
            raise error


def test_whoever_waits_is_told_as_soon_as_the_reader_is_gone() -> None:
    with piped() as pipe:
        wait_for_reader(0)
        pipe.stop_reading()
        with pytest.raises(BrokenPipeError):
            wait_for_reader(60)


def test_a_block_whose_reader_goes_hears_of_it_once_and_ends_as_a_broken_pipe() -> None:
    calls: list[str] = []
    with pytest.raises(BrokenPipeError):
        lose_the_reader(lambda: calls.append("gone"))
    assert calls == ["gone"]


def test_a_block_whose_reader_goes_ends_by_the_error_that_it_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        lose_the_reader(lambda: None, ZeroDivisionError())


def test_a_block_whose_reader_stays_ends_with_no_call_and_no_thread() -> None:
    before = set(threading.enumerate())
    with piped(), when_reader_goes(pytest.fail):
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


def test_a_consumer_that_is_told_to_stop_ends_orderly_and_told_twice_at_once() -> None:
    with Hub.from_backend(MemoryBackend()) as hub:
        consumer = hub.create_topic("orders").tail(group="billing")
        with Signals() as signals:
            signals.noted = partial(_stop, consumer, signals)
            signal.raise_signal(signal.SIGINT)
            assert consumer._session.stopping
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
