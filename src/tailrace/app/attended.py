"""An app that runs until a signal, attended by the main thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from tailrace.app.running_app import RunningApp
from tailrace.terminal.signals import Signals

STOPPED: Final = 3
"""The exit status of a process that was ended at once by a second signal."""

_AT_ONCE: Final = b"ended at once; messages in flight will be redelivered\n"


class AppObserver:
    """Is told of the life of an app, in the thread that attends it. This one does nothing."""

    interval_s: float | None = None
    """Seconds between two calls of `waited`; None for no calls."""

    def started(self, running: RunningApp) -> None:
        """The workers of all subscriptions were started."""

    def waited(self, running: RunningApp) -> None:
        """Some time has passed. Called every `interval_s`."""

    def draining(self) -> None:
        """The app was stopped and waits for the calls in flight."""


def run_until_signal(
    start: Callable[[], RunningApp],
    observer: AppObserver,
    *,
    signals_max: int | None = 1,
) -> bool:
    """Start an app and run it until Ctrl-C or SIGTERM. False if a message is left in flight.

    More than `signals_max` signals end the process at once, with exit status 3; None is for a
    process whose supervisor kills it instead. A signal while the app starts stops it once it has
    started. Only the main thread can handle signals; in another one, the app runs until another
    thread stops it.
    """
    if threading.current_thread() is not threading.main_thread():
        return _attended(start(), observer)
    running: RunningApp | None = None

    def received() -> None:
        if signals_max is not None and signals.count > signals_max:
            # Not by the streams: the signal may have interrupted a write to them.
            os.write(2, _AT_ONCE)
            os._exit(STOPPED)
        if running is not None:
            running.stop()

    with Signals(received) as signals:
        running = start()
        if signals.count:
            running.stop()
        return _attended(running, observer)


def _attended(running: RunningApp, observer: AppObserver) -> bool:
    with running:
        observer.started(running)
        while not running.wait(observer.interval_s):
            observer.waited(running)
        observer.draining()
        return running.close()
