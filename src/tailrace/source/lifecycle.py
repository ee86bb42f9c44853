"""The end of a source: everything that the hub stores of its reading is removed."""

from __future__ import annotations

from tailrace.backend.contract import FENCES, Change, raise_fence
from tailrace.backend.table_scan import clear_table
from tailrace.group.store.definition import LEADERS, grant_key, unit_fence
from tailrace.group.store.presence import members_prefix
from tailrace.hub.hub import Hub
from tailrace.reserved_names import HEARTBEAT_SUFFIX, SYNC_SUFFIX
from tailrace.source.names import LEADER, SNAPSHOTS, task_group
from tailrace.source.split_state import fence_of, table_of
from tailrace.source.task.task_record import records_table
from tailrace.subscription.store.shared_names import SOURCES


def forget_source(hub: Hub, name: str) -> None:
    """Remove the splits of a source, its tasks, its topics of tasks, and its entry of the catalog.

    Its commit log and its dead letters stay. A task that runs nevertheless is fenced. The entry of
    the catalog goes last, so after a crash this function can be called again.
    """
    backend = hub.backend
    # From here on no task can take units, and none can store what it reads.
    epoch = raise_fence(backend.store, table_of(name))
    units = [entry.key for entry in backend.store.scan(FENCES + fence_of(name, ""))]
    backend.store.commit(Change(writes=dict.fromkeys(units)))
    for table in (table_of(name), records_table(name)):
        clear_table(backend, table, epoch)
    for topic in (name + SYNC_SUFFIX, name + HEARTBEAT_SUFFIX):
        if topic in hub.topics():
            hub.delete_topic(topic)
    group = task_group(name)
    members = [entry.key for entry in backend.store.scan(members_prefix(group))]
    keys = [
        *members,
        SNAPSHOTS + name,
        LEADERS + group,
        grant_key(group, LEADER),
        FENCES + unit_fence(group, LEADER),
        FENCES + table_of(name),
        SOURCES + name,
    ]
    held = [key for key in keys if backend.store.get(key) is not None]
    backend.store.commit(Change(writes=dict.fromkeys(held)))
