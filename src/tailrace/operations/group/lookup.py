"""Finding groups by name."""

from __future__ import annotations

from tailrace.errors import UnknownGroup
from tailrace.group.store.definition import find_group, group_names
from tailrace.hub.hub import Hub


def check_group(hub: Hub, name: str) -> None:
    """Raise `UnknownGroup` if there is no such group. It says so if a subscription has the name."""
    if find_group(hub.backend, name) is None:
        raise UnknownGroup(name, hub.backend.name, group_names(hub.backend), hub.subscriptions())
