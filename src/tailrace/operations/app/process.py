"""One process of an app: alone, or one of several with a supervisor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.app.attended import AppObserver
from tailrace.app.running_app import RunningApp
from tailrace.errors import Error
from tailrace.operations.app.activity import Activity, activity_of
from tailrace.operations.app.link import MeasuredProcess, SupervisedLink

OBSERVE_S: Final = 2.0
"""Seconds between two looks at the activity of the app."""

_log: Final = logging.getLogger("tailrace.app")


class ProcessObserver(AppObserver):
    """Reports to the supervisor if there is one. Else logs, and lets `show` show the activity."""

    def __init__(
        self, link: SupervisedLink | None = None, show: Callable[[Activity], None] | None = None
    ) -> None:
        self.has_started = False
        self.metrics: MeasuredProcess | None = None
        """The metrics of the process, once its hub is open."""
        self._link = link
        self._show = show
        self.interval_s = None if show is None else OBSERVE_S

    def started(self, running: RunningApp) -> None:
        """Report that the process is ready."""
        self.has_started = True
        if self._link is None:
            _log.info("running %s", ", ".join(running.workers))
        else:
            self._link.activity = partial(activity_of, running)
            self._link.metrics = self.metrics
            self._link.say_ready()

    def waited(self, running: RunningApp) -> None:
        """Show the activity."""
        if self._show is not None:
            self._show(activity_of(running))

    def draining(self) -> None:
        """Log that the calls in flight are awaited."""
        if self._link is None:
            _log.info("stopping: waiting for the calls in flight")

    def failed(self, error: Exception) -> None:
        """Report an error if the process would have it again.

        At the start that is every error but one of storage that does not answer.
        """
        lasting = not error.retryable if isinstance(error, Error) else not self.has_started
        if self._link is not None and lasting:
            self._link.say_refused()
