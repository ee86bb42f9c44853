"""Records of blocked keys that were read, and not kept because too many are held back.

A key can wait for days while the other keys continue. The records that it receives meanwhile are
held back up to a bound. Beyond the bound they are deferred: they stay unacknowledged, and are
read again when the key continues.
"""

from __future__ import annotations


class DeferredRecords:
    """The keys with records that were deferred. For one thread at a time."""

    def __init__(self) -> None:
        self._keys: dict[bytes, tuple[int, int, int]] = {}  # first and last offset, count

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def add(self, key: bytes, offset: int) -> None:
        """Defer a record. One that was deferred before is counted once."""
        first, last, count = self._keys.get(key, (offset, -1, 0))
        if offset > last:
            self._keys[key] = first, offset, count + 1

    def pop(self, key: bytes | int) -> int | None:
        """Return the offset of the first record of a key that was deferred, if any. The key has
        none any more."""
        found = self._keys.pop(key, None) if isinstance(key, bytes) else None
        return None if found is None else found[0]

    def count(self, key: bytes | int) -> int:
        """Return the number of records of a key that were deferred."""
        found = self._keys.get(key) if isinstance(key, bytes) else None
        return 0 if found is None else found[2]
