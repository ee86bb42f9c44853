"""Whether anybody still reads what a command prints.

A command that waits writes nothing, so it does not notice by itself that whoever read from it is
gone, as after ``| head``.
"""

from __future__ import annotations

import io
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wait_for_reader(seconds: float) -> None:
    """Wait so long; `BrokenPipeError`, which ends a command quietly, as soon as nobody reads."""
    poll = select.poll()
    _register(poll)
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


@contextmanager
def when_reader_goes(call: Callable[[], None]) -> Iterator[None]:
    """Call something in another thread, once, if the reader goes within the block.

    Then `BrokenPipeError` is raised at the end of a block that raised nothing.
    """
    gone = threading.Event()
    ours, theirs = socket.socketpair()

    def watch() -> None:
        poll = select.poll()
        output = _register(poll)
        poll.register(theirs, select.POLLIN)
        if any(descriptor == output for descriptor, _ in poll.poll()):
            gone.set()
            call()

    watching = threading.Thread(target=watch, name="tailrace reader", daemon=True)
    with ours, theirs:
        watching.start()
        try:
            yield
        finally:
            ours.send(b"\0")
            watching.join()
    if gone.is_set():
        raise BrokenPipeError


def _register(poll: select.poll) -> int | None:
    """Have a poll tell when the reader is gone; the descriptor, if the output has one."""
    try:
        output = sys.stdout.fileno()
    except io.UnsupportedOperation:  # it is kept in memory
        return None
    poll.register(output, 0)  # for errors alone, which are always told
    return output
