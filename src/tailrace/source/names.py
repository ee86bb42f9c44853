"""The names under which a source is stored.

    source/NAME                      store: that the source exists, and since when
    source-sync/NAME                 store: the offset from which the sync topic must be read
    fence/source/NAME                store: the epoch of the source
    fence/source/NAME/UNIT           store: the fence of a unit
    source/NAME                      table: the splits
    NAME_connector_sync              topic: what tasks tell each other
    NAME_heartbeat                   topic: when the members have changed
    group-grant/source:NAME/leader   store: the leader task

The tasks of a source form a group of the name ``source:NAME``. No user can give a group such a
name, and it has no entry ``group/…``, so it is not listed among groups.
"""

from __future__ import annotations

from typing import Final

from tailrace.reserved_names import SOURCE_GROUP_PREFIX

SNAPSHOTS: Final = "source-sync/"
"""Store entries under this prefix are offsets of sync topics."""

LEADER: Final = "leader"
"""The only unit of the group of a source: its owner is the leader task."""


def task_group(source: str) -> str:
    """Return the group that the tasks of a source form."""
    return SOURCE_GROUP_PREFIX + source


def source_of(group: str) -> str | None:
    """Return the source whose tasks form a group; None if it is another group."""
    name = group.removeprefix(SOURCE_GROUP_PREFIX)
    return None if name == group else name
