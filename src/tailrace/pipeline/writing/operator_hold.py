"""Waiting for an operator who intervenes in a writer."""

from __future__ import annotations

import threading
from typing import Final

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.pipeline.writing.writer_ledger import WriterName

_WAIT_S: Final = 5.0
_POLL_S: Final = 0.01
"""How long a driver waits for an operator to finish, and how often it polls."""


def wait_for_operator(
    backend: Backend, writer: WriterName, clock: Clock, stopping: threading.Event
) -> None:
    """Wait until no operator holds the writer, for a limited time.

    Without the wait, the driver would overtake an operator before the operator has written. The
    fence alone decides who may write, so the limit does no harm.
    """
    deadline = clock.monotonic() + _WAIT_S
    while backend.holder(writer.operator) is not None:
        if clock.monotonic() >= deadline or stopping.wait(_POLL_S):
            return
