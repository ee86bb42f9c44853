"""A repeated failure of the backend, logged once when it starts and once when it ends."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.errors import BackendUnavailable, Busy, Conflict, Fenced

TRANSIENT: Final = (BackendUnavailable, Busy, Conflict, Fenced)
"""Errors of a backend after which the caller tries again later."""


class Outage:
    """Logs the start and the end of a time in which an activity fails.

    Threads may share an outage: at worst its start is logged twice.
    """

    def __init__(self, log: logging.Logger, activity: str) -> None:
        self._log = log
        self._activity = activity
        self._failing = False

    def failed(self, error: BaseException) -> None:
        """Record a failure of an attempt that will be retried."""
        level = logging.DEBUG if self._failing else logging.WARNING
        self._log.log(level, "%s failed, retrying: %s", self._activity, error)
        self._failing = True

    def worked(self) -> None:
        """Record an attempt that succeeded."""
        if self._failing:
            self._log.info("%s succeeded again", self._activity)
        self._failing = False
