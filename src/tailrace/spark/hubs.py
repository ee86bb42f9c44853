"""The hubs that this process has open: planners and workers are asked again and again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import Error, IncompatibleHub
from tailrace.hub import Hub
from tailrace.hub import open as open_hub


class _Opened(NamedTuple):
    hub: Hub
    file: tuple[int, int]


_OPENED: dict[str, _Opened] = {}


def hub_at(directory: str) -> Hub:
    """The hub in a directory, which must have one; it stays open for the next time."""
    path = str(Path(directory).absolute())
    try:
        status = Path(path, "hub.db").stat()
    except OSError:
        raise IncompatibleHub(
            f"no hub in {directory}", f"make one: tailrace topic create NAME --hub {directory}"
        ) from None
    # A hub that was deleted and made again is another file.
    file = status.st_dev, status.st_ino
    opened = _OPENED.get(path)
    if opened is None or opened.file != file:
        if opened is not None:
            with contextlib.suppress(Error):
                opened.hub.close()
        opened = _OPENED[path] = _Opened(open_hub(path), file)
    return opened.hub


def log_of(hub: Hub) -> EmbeddedLog:
    """The log of a hub that lives in a directory, whose files others can read."""
    log = hub.backend.log
    if not isinstance(log, EmbeddedLog):
        raise IncompatibleHub(f"{hub.backend.name} has no files for Spark to read")
    return log
