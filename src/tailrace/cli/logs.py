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


def log_to_stderr() -> None:
    """Send warnings and worse of Tailrace to this process's stderr. Again does nothing."""
    if _LOGGER.handlers:
        return
    handler = logging.StreamHandler()
    people = logging.Formatter("%(levelname)s: %(message)s")
    handler.setFormatter(people if sys.stderr.isatty() else JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
