"""The open hubs of this process, because planners and workers need them again and again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tailrace.backend.capabilities import HasSegments, segments_of
from tailrace.errors import Error, UnknownHub
from tailrace.hub.hub import Hub
from tailrace.hub.opening import open as open_hub


class _OpenHub(NamedTuple):
    hub: Hub
    file: tuple[int, int]


Mode: TypeAlias = Literal["rw", "ro"]

_OPENED: dict[tuple[str, Mode], _OpenHub] = {}


def hub_at(directory: str, mode: Mode = "rw") -> Hub:
    """Return the hub in a directory, which must exist; it stays open for the next call.

    Reads open it read-only, so that they need no right to write.
    """
    path = str(Path(directory).absolute())
    try:
        status = Path(path, "hub.db").stat()
    except (FileNotFoundError, NotADirectoryError):
        open_hub(directory, create=False).close()  # Raises the reason, if it is another one.
        raise UnknownHub(directory) from None
    # A hub that was deleted and created again is another file.
    file = status.st_dev, status.st_ino
    opened = _OPENED.get((path, mode))
    if opened is None or opened.file != file:
        close_hub_at(path, mode)
        opened = _OPENED[path, mode] = _OpenHub(open_hub(path, create=False, mode=mode), file)
    return opened.hub


def close_hub_at(directory: str, mode: Mode = "rw") -> None:
    """Close the hub in a directory, if it is open here: the next `hub_at` opens it again."""
    opened = _OPENED.pop((str(Path(directory).absolute()), mode), None)
    if opened is not None:
        with contextlib.suppress(Error):
            opened.hub.close()


def log_of(hub: Hub) -> HasSegments:
    """Return the hub's log, whose files Spark's tasks read; `NotSupported` if it has none."""
    return segments_of(hub.backend, "read a topic with Spark")
