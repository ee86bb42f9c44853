"""Signals while a command runs a pipeline or a source."""

from __future__ import annotations

import os
from collections.abc import Callable

from tailrace.cli.context import ExitStatus
from tailrace.terminal.signals import Signals


def stop_then_exit(
    signals: Signals, stop: Callable[[], object], at_once: str
) -> Callable[[], None]:
    """Return what to do at each signal: the first one stops, the second one ends the process at
    once, with the sentence `at_once` and the status for work that is left."""

    def received() -> None:
        stop()
        if signals.count > 1:
            # Not by the streams: the signal may have interrupted a write to them.
            os.write(2, f"{at_once}\n".encode())
            os._exit(ExitStatus.STOPPED)

    return received
