"""A store that fails again and again, said once."""

from __future__ import annotations

import logging

from tailrace.errors import BackendUnavailable, Busy, Conflict, Fenced

PASSING = (BackendUnavailable, Busy, Conflict, Fenced)
"""Errors of a backend after which the same is tried again later."""


class Trouble:
    """Logs the beginning and the end of a time in which something does not work.

    Threads that share one may at worst say it twice.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._failing = False

    def failed(self, error: BaseException) -> None:
        """It did not work, and will be tried again."""
        level = logging.DEBUG if self._failing else logging.WARNING
        self._log.log(level, "%s does not work, and is tried again: %s", self._what, error)
        self._failing = True

    def worked(self) -> None:
        """It worked."""
        if self._failing:
            self._log.info("%s works again", self._what)
        self._failing = False
