"""How far the owner of a unit may have handed out what the ledger does not hold.

Before an owner hands out a record, the unit's reach, an offset beyond it, is durable. A clean end
takes the entry away, unless something that was handed out is still to be delivered. So whoever
finds an entry knows what may have been in a consumer's hands before: the offsets below it that the
ledger does not hold.

It is an entry of the table ``group-reach/GROUP`` for each unit: 8 bytes, big-endian.
"""

from __future__ import annotations

from tailrace.backend.contract import Table, TableKey
from tailrace.topic.ledger import entries


def reach_table(group: str) -> str:
    """The table of a group."""
    return f"group-reach/{group}"


def reach_key(group: str, unit: str) -> TableKey:
    """The entry of a unit."""
    return TableKey(reach_table(group), unit.encode())


def reach_keys(table: Table, group: str, topic: str) -> list[TableKey]:
    """The entries of all units of a topic, also of an earlier one of the same name."""
    name = reach_table(group)
    return [TableKey(name, key) for key, _ in entries(table, name, f"{topic}/".encode())]


def read_reach(table: Table, group: str, unit: str) -> int:
    """The reach that is stored; 0 when there is none."""
    value = table.get(*reach_key(group, unit))
    return 0 if value is None else int.from_bytes(value)


def reach_value(reach: int) -> bytes | None:
    """What to store: None, which removes the entry, for a reach of 0."""
    return reach.to_bytes(8) if reach else None
