"""The stored upper bound of what the owner of a unit may have delivered.

Before an owner delivers a record, the unit's `handed_out` offset, which is above the record's, is
durable. A clean end removes the entry, unless a delivered record is still to be acknowledged. So an
owner that finds an entry knows which records may have been delivered before: the offsets below it
that the ledger does not hold.

The table ``group-reach/GROUP`` has an entry for each unit: 8 bytes, big-endian.
"""

from __future__ import annotations

from tailrace.backend.contract import Table, TableKey
from tailrace.backend.table_scan import scan_prefix


def handed_out_table(group: str) -> str:
    """Return the name of a group's table."""
    return f"group-reach/{group}"


def handed_out_key(group: str, unit: str) -> TableKey:
    """Return the key of a unit's entry."""
    return TableKey(handed_out_table(group), unit.encode())


def handed_out_keys(table: Table, group: str, topic: str) -> list[TableKey]:
    """Return the keys of all units of a topic, also of an earlier topic of the same name."""
    name = handed_out_table(group)
    return [TableKey(name, key) for key, _ in scan_prefix(table, name, f"{topic}/".encode())]


def read_handed_out(table: Table, group: str, unit: str) -> int:
    """Return the stored offset of a unit, or 0 if there is none."""
    value = table.get(*handed_out_key(group, unit))
    return 0 if value is None else int.from_bytes(value)


def handed_out_value(offset: int) -> bytes | None:
    """Return the value to store: for 0 None, which removes the entry."""
    return offset.to_bytes(8) if offset else None
