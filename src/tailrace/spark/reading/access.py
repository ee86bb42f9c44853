"""Reading files of a hub on whatever host a task of Spark runs. For tasks.

The driver plans which files hold which offsets. A host that does not see the hub's directory, or
may not read it, finds no file; so does any host after a compaction has replaced the files. The
first is an error that names the host, the path and the remedy. After the second, a task on the
hub's own host looks the files up again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from tailrace.errors import ConfigError, CorruptBatch, Error, UnknownTopic
from tailrace.spark.hubs import hub_at, log_of
from tailrace.spark.ranges import ReadRange, read_range
from tailrace.user_name import user_name

_DATABASE: Final = "hub.db"


def require_readable(hub: str) -> None:
    """Raise `ConfigError` unless this process sees the hub in a directory and may read it."""
    database = Path(hub, _DATABASE)
    try:
        is_seen = database.is_file()
    except PermissionError:
        raise forbidden(hub) from None
    if not is_seen:
        raise ConfigError(
            f"host {socket.gethostname()} does not see the hub {hub}",
            "make its directory visible under the same path on every host that runs executors,"
            " or run the executors on the hub's host",
        )
    if not os.access(database, os.R_OK):
        raise forbidden(str(database))


def forbidden(path: str) -> ConfigError:
    """Return the error for a path that the user of this process may not read."""
    return ConfigError(
        f"user {user_name()} on host {socket.gethostname()} may not read {path}",
        "give this user the right to read the hub's directory and its files,"
        " or run the executors as another user",
    )


def read_here(wanted: ReadRange, hub: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, on a host that may see the files of the hub or not.

    Looks the files up again if a compaction replaced them; the records that it dropped are left
    out. `ConfigError` if this host cannot read the hub or the topic was deleted, `CorruptBatch`
    for damage.
    """
    at = wanted.start
    try:
        for batch in read_range(wanted):
            at = batch["offset"][-1].as_py() + 1
            yield batch
    except PermissionError as error:
        raise forbidden(str(error.filename or hub)) from None
    except CorruptBatch as damage:
        if Path(damage.file).exists():
            raise
        rest = _looked_up(wanted._replace(start=at), hub, damage.file)
        if rest.extents == tuple(each for each in wanted.extents if each.end > at):
            raise
        yield from read_range(rest)


def read_replaced(wanted: ReadRange, hub: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range from the files that hold them now, whatever was planned.

    `ConfigError` if this host cannot read the hub, `CorruptBatch` for damage.
    """
    yield from read_range(_looked_up(wanted, hub, "a file"))


def _looked_up(wanted: ReadRange, hub: str, replaced: str) -> ReadRange:
    """Return a range with the files that hold it now; `replaced` is a file that held it.

    A compaction writes the new files of a partition beside the old ones. Each partition has a
    directory of its own, also that of a topic which was created again under the same name.
    """
    require_readable(hub)
    if not all(Path(extent.log_path).parent.is_dir() for extent in wanted.extents):
        topic = wanted.partition.topic
        raise ConfigError(
            f"topic {topic!r} of {hub} was deleted since the query was planned",
            "run the query again, if there is another topic of the name by now",
        )
    try:
        log = log_of(hub_at(hub, "ro"))
        extents = tuple(log.extents(wanted.partition, wanted.start, wanted.end))
    except UnknownTopic:
        raise
    except Error as error:
        raise ConfigError(
            f"{replaced} was replaced since the query was planned, and host"
            f" {socket.gethostname()} cannot look up its successor: {error}",
            "run the query again",
        ) from error
    return wanted._replace(extents=extents)
