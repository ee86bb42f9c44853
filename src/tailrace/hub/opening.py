"""Opening a hub in a directory."""

from __future__ import annotations

import os
from typing import Literal

from tailrace.errors import InvalidValue
from tailrace.hub.hub import Hub
from tailrace.settings import HubSettings, load


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    sync: str | None = None,
    create: bool = True,
    mode: Literal["rw", "ro"] = "rw",
    settings: HubSettings | None = None,
) -> Hub:
    """Open the hub in a directory; create it if there is none. Any number of processes may open it.

    With ``create=False``, a directory without a hub is `UnknownHub`. With ``mode="ro"`` the hub is
    opened read-only: nothing is created or written, no right to write is needed, and every write
    raises `ReadOnlyHub`. Other processes may write the hub meanwhile.

    Missing arguments come from the environment and the nearest `tailrace.toml`; the default
    directory is `tailrace-data`. `sync` is fixed when a hub is created: ``"batch"`` (a push is on
    the disk when it returns) or ``"none"``. Opening an existing hub with another policy is an
    error.
    """
    # Imported here, because hubs in other backends do not need it.
    from tailrace.backend.embedded import EmbeddedBackend, ReadOnlyBackend

    if mode not in ("rw", "ro"):
        raise InvalidValue("mode", mode, "rw or ro")
    chosen = settings or load().hub
    directory = os.fspath(chosen.path if path is None else path)
    if "://" in directory:
        raise InvalidValue("hub", directory, "a directory")
    if sync is None and chosen.sync is not HubSettings().sync:
        sync = chosen.sync
    if mode == "ro":
        return Hub.from_backend(ReadOnlyBackend.open(directory, sync=sync), settings=chosen)
    backend = EmbeddedBackend.open(
        directory,
        sync=sync,
        create=create,
        segment_bytes=chosen.segment_bytes,
        lock_timeout_s=chosen.lock_timeout.total_seconds(),
    )
    return Hub.from_backend(backend, settings=chosen)
