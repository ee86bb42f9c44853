"""What the library logs, on stderr: a line for people on a terminal, a line of JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

_LOGGER: Final = logging.getLogger("tailrace")


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, and the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        import msgspec

        fields = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


class OneLine(logging.Formatter):
    """A record as a line for people: level, message, and what the error says if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        error = record.exc_info[1] if record.exc_info else None
        said = "" if error is None else f": {type(error).__name__}: {error}"
        return f"{record.levelname}: {record.getMessage()}{said}"


def log_to_stderr() -> None:
    """Send warnings and worse of Tailrace to this process's stderr. Again does nothing."""
    if _LOGGER.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine() if sys.stderr.isatty() else JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
