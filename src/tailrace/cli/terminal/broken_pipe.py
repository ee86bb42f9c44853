"""Noticing that the reader of the output has closed the pipe.

A command that waits for messages writes nothing, so it gets no error when its reader ends, as after
``| head``.
"""

from __future__ import annotations

import io
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wait_for_closed_pipe(seconds: float) -> None:
    """Wait. Raise `BrokenPipeError`, which ends a command quietly, if the pipe is closed."""
    poll = select.poll()
    _register(poll)
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


@contextmanager
def when_pipe_closes(call: Callable[[], None]) -> Iterator[None]:
    """Call a function in another thread, once, if the pipe is closed during the block.

    Raise `BrokenPipeError` at the end of the block then, unless it raised another error.
    """
    closed = threading.Event()
    ours, theirs = socket.socketpair()

    def watch() -> None:
        poll = select.poll()
        output = _register(poll)
        poll.register(theirs, select.POLLIN)
        if any(descriptor == output for descriptor, _ in poll.poll()):
            closed.set()
            call()

    watching = threading.Thread(target=watch, name="tailrace reader", daemon=True)
    with ours, theirs:
        watching.start()
        try:
            yield
        finally:
            ours.send(b"\0")
            watching.join()
    if closed.is_set():
        raise BrokenPipeError


def _register(poll: select.poll) -> int | None:
    """Register the output for errors. Return its descriptor, or None if it has none."""
    try:
        output = sys.stdout.fileno()
    except io.UnsupportedOperation:  # the output is in memory
        return None
    poll.register(output, 0)  # errors are always reported
    return output
