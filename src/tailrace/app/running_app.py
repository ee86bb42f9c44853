"""An app that runs in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from types import MappingProxyType
from typing import Final

from tailrace.backend.pickling import Unpicklable
from tailrace.closing import Closing
from tailrace.queue.lifecycle import queue_errors
from tailrace.subscription.worker.worker import Worker
from tailrace.terminal.signals import POLL_S, wait_for

_log: Final = logging.getLogger("tailrace.app")


class RunningApp(Closing, Unpicklable):
    """The workers of an app in this process, one for each subscription.

    Leave the `with` block, or call `close`, to end them in an orderly way. If one of them ends with
    an error, for example because its subscription was deleted, all stop, and `wait` raises it.
    """

    def __init__(self, workers: Mapping[str, Worker], queues: Collection[str] = ()) -> None:
        self.workers: Mapping[str, Worker] = MappingProxyType(dict(workers))
        """The workers by the names of their subscriptions and queues."""
        self._queues = frozenset(queues)
        self._changed = threading.Condition()
        self._working = len(workers)
        self._error: BaseException | None = None
        for name, worker in workers.items():
            # One thread for each, because the end of a worker is told only to those who wait.
            threading.Thread(
                target=self._watch, args=(name, worker), name=f"tailrace app {name}", daemon=True
            ).start()

    def __repr__(self) -> str:
        return f"<RunningApp {', '.join(self.workers)}>"

    def stop(self) -> None:
        """Call no more handlers, and have `wait` return. Any thread may call it, also in a signal
        handler."""
        for worker in self.workers.values():
            worker.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the app is stopped. False after the timeout.

        Raises the error that ended a worker.
        """
        with self._changed:
            ended = wait_for(self._changed, lambda: not self._working, timeout_s)
            if self._error is not None:
                raise self._error
        return ended

    def close(self) -> bool:
        """End all workers: wait for their calls, up to `drain_timeout`, and store the outcomes.

        False if a call did not end in time, or its outcome could not be stored: its message will
        be redelivered. Closing again does nothing.
        """
        self.stop()
        with ThreadPoolExecutor(len(self.workers), "tailrace app") as pool:
            closing = [pool.submit(worker.close) for worker in self.workers.values()]
            while wait(closing, POLL_S).not_done:  # In small steps, to handle a second signal.
                pass
            return all(closed.result() for closed in closing)

    def _watch(self, name: str, worker: Worker) -> None:
        is_queue = name in self._queues
        try:
            with queue_errors(name) if is_queue else nullcontext():
                worker.wait()
        except BaseException as error:
            kind = "queue" if is_queue else "subscription"
            _log.error("the worker of %s %s ended", kind, name, exc_info=error)
            with self._changed:
                self._error = self._error or error
            self.stop()
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()
