"""Log records of the library, and of the libraries that it uses, on stderr.

They are text, as the other messages of a command. Only the commands ``run``, also those of
pipelines, sources and subscriptions, log lines of JSON where stderr is not a terminal: they may be
services.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from tailrace.error_text import describe_error

_LOGGER: Final = logging.getLogger("tailrace")


class _CompletingFormatter(logging.Formatter):
    """A formatter whose messages are completed by `complete`."""

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        super().__init__()
        self.complete = complete


class JsonLogFormatter(_CompletingFormatter):
    """Formats a record as one line of JSON: time, level, logger, message, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        import msgspec

        fields = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.complete(record.getMessage()),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


class TextLogFormatter(_CompletingFormatter):
    """Formats a record as one line of text: level, message, and any error.

    If the message ends with the error, the traceback follows: that is an error of a handler.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        error = record.exc_info[1] if record.exc_info else None
        reason = ""
        if record.exc_info and error is not None:
            reason = f": {describe_error(error)}"
            if record.getMessage().endswith(reason):
                reason = "\n" + self.formatException(record.exc_info)
        return self.complete(f"{record.levelname}: {record.getMessage()}{reason}")


def log_to_stderr(complete: Callable[[str], str] = str) -> None:
    """Log warnings and errors of Tailrace to stderr as text. A second call does nothing.

    `complete` gets every message, and returns it with the hub in its suggested commands.
    """
    if _LOGGER.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(TextLogFormatter(complete))
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False


def log_json_without_terminal() -> None:
    """Log lines of JSON from now on, if stderr is not a terminal.

    For a command that runs as a service and whose other lines on stderr are JSON.
    """
    for handler in _LOGGER.handlers:
        if isinstance(handler.formatter, TextLogFormatter) and not sys.stderr.isatty():
            handler.setFormatter(JsonLogFormatter(handler.formatter.complete))


def log_other_libraries() -> None:
    """Log warnings and errors of all libraries, such as py4j, in the form of Tailrace's own.

    For a command that runs as a service, after the user's module was imported: if the module has
    configured logging, that holds. Otherwise a library that logs through the root logger, as py4j
    does, would turn on text for all of them.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    for handler in _LOGGER.handlers:
        root.addHandler(handler)
    logging.captureWarnings(True)
